// A tool round trip with Anthropic's own SDK: `node anthropic_sdk.mjs URL MODEL whole|streamed|errors|cancelled`.
import Anthropic from "@anthropic-ai/sdk";

const [baseURL, model, way] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "any", maxRetries: 0, timeout: 20000 });
const tools = [
  {
    name: "get_weather",
    description: "Says what the weather is like in a city.",
    input_schema: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city", "days"],
    },
  },
];
const question = { role: "user", content: "What will the weather be in Paris for 3 days?" };
const request = (messages) => ({ model, max_tokens: 1000, messages, tools });

async function ask(messages) {
  if (way === "whole") return client.messages.create(request(messages));
  const stream = client.messages.stream(request(messages));
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const message = await stream.finalMessage();
  const told = message.content.filter((block) => block.type === "text").map((block) => block.text);
  if (told.join("") !== text) throw new Error("the pieces are not the whole");
  return message;
}

async function roundTrip() {
  const asked = await ask([question]);
  const calls = asked.content.filter((block) => block.type === "tool_use");
  const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "sunny, 21 degrees" }));
  const told = await ask([
    question,
    { role: "assistant", content: asked.content },
    { role: "user", content: results },
  ]);
  return {
    calls: calls.map((call) => ({ name: call.name, arguments: call.input })),
    finishes: [asked.stop_reason, told.stop_reason],
    answer: told.content.map((block) => block.text ?? "").join(""),
  };
}

async function fault() {
  try {
    await ask([question]);
    return { error: null };
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? null, type: error.error?.error?.type ?? null };
  }
}

async function cancelled() {
  const controller = new AbortController();
  const options = { signal: controller.signal };
  let pieces = 0;
  for await (const event of await client.messages.create({ ...request([question]), stream: true }, options)) {
    if (event.type !== "content_block_delta") continue;
    pieces += 1;
    controller.abort();
  }
  return { pieces };
}

const made = way === "errors" ? await fault() : way === "cancelled" ? await cancelled() : await roundTrip();
console.log(JSON.stringify(made));
