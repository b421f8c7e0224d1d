// A tool round trip with openai-node: `node openai_sdk.mjs BASE_URL MODEL whole|streamed`. Prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, model, mode] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0, timeout: 20_000 });

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "Says what the weather is like in a city.",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, days: { type: "integer" } },
        required: ["city", "days"],
      },
    },
  },
];

async function ask(messages) {
  const request = { model, messages, tools };
  if (mode === "whole") return (await client.chat.completions.create(request)).choices[0];
  const stream = client.chat.completions.stream(request);
  return (await stream.finalChatCompletion()).choices[0];
}

const messages = [{ role: "user", content: "What will the weather be in Paris for 3 days?" }];
const first = await ask(messages);
const calls = first.message.tool_calls ?? [];
messages.push(first.message);
for (const call of calls) {
  messages.push({ role: "tool", tool_call_id: call.id, content: "sunny, 21 degrees" });
}
const last = await ask(messages);

console.log(
  JSON.stringify({
    calls: calls.map((call) => ({ name: call.function.name, arguments: JSON.parse(call.function.arguments) })),
    finishes: [first.finish_reason, last.finish_reason],
    answer: last.message.content,
  }),
);
