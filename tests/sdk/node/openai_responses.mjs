// openai-node on the Responses API: `node openai_responses.mjs BASE_URL MODEL whole|streamed|chained|errors|cancelled`.
import OpenAI from "openai";

const [baseURL, model, way] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0, timeout: 20_000 });

const tools = [
  {
    type: "function",
    name: "get_weather",
    description: "Says what the weather is like in a city.",
    strict: false,
    parameters: {
      type: "object",
      properties: { city: { type: "string" }, days: { type: "integer" } },
      required: ["city", "days"],
    },
  },
];
const question = { role: "user", content: "What will the weather be in Paris for 3 days?" };

async function ask(input, more = {}) {
  const request = { model, input, tools, ...more };
  if (way === "whole") return client.responses.create({ ...request, store: false });
  const stream = client.responses.stream(request);
  let text = "";
  let last = -1;
  stream.on("response.output_text.delta", (event) => {
    text += event.delta;
    if (!event.snapshot.endsWith(event.delta)) throw new Error("the snapshot is not what was told");
  });
  stream.on("event", (event) => {
    if (event.sequence_number !== last + 1) throw new Error(`event ${event.sequence_number} behind ${last}`);
    last = event.sequence_number;
  });
  const response = await stream.finalResponse();
  if (response.output_text !== text) throw new Error("the pieces are not the whole");
  return response;
}

async function roundTrip() {
  const asked = await ask([question]);
  const calls = asked.output.filter((item) => item.type === "function_call");
  const results = calls.map((call) => ({
    type: "function_call_output",
    call_id: call.call_id,
    output: "sunny, 21 degrees",
  }));
  const isChained = way === "chained";
  const input = isChained ? results : [question, ...asked.output, ...results];
  const told = await ask(input, isChained ? { previous_response_id: asked.id } : {});
  return {
    calls: calls.map((call) => ({ name: call.name, arguments: JSON.parse(call.arguments) })),
    finishes: [asked.status, told.status],
    answer: told.output_text,
    kept: isChained ? (await client.responses.retrieve(told.id)).output_text : null,
  };
}

async function fault() {
  try {
    for await (const event of await client.responses.create({ model, input: [question], stream: true })) {
      if (event.type !== "response.failed") continue;
      return { error: event.type, code: event.response.error.code };
    }
    return { error: null };
  } catch (error) {
    return { error: error.constructor.name, status: error.status ?? null, code: error.code ?? null };
  }
}

async function cancelled() {
  const controller = new AbortController();
  const options = { signal: controller.signal };
  let pieces = 0;
  for await (const event of await client.responses.create({ model, input: [question], stream: true }, options)) {
    if (event.type !== "response.output_text.delta") continue;
    pieces += 1;
    controller.abort();
  }
  return { pieces };
}

const made = way === "errors" ? await fault() : way === "cancelled" ? await cancelled() : await roundTrip();
console.log(JSON.stringify(made));
