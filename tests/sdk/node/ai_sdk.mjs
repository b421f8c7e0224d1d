// A tool round trip with the Vercel AI SDK, which runs the tool itself and asks again:
// `node ai_sdk.mjs BASE_URL MODEL whole|streamed`. Prints what it saw as JSON.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const [baseURL, model, mode] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "toolgate", baseURL, apiKey: "any" });

const calls = [];
const request = {
  model: provider(model),
  prompt: "What will the weather be in Paris for 3 days?",
  stopWhen: stepCountIs(3),
  maxRetries: 0,
  abortSignal: AbortSignal.timeout(20_000),
  tools: {
    get_weather: tool({
      description: "Says what the weather is like in a city.",
      inputSchema: z.object({ city: z.string(), days: z.number().int() }),
      execute: async (input) => {
        calls.push({ name: "get_weather", arguments: input });
        return "sunny, 21 degrees";
      },
    }),
  },
};

let result;
if (mode === "whole") {
  result = await generateText(request);
} else {
  result = streamText({ ...request, onError: ({ error }) => { throw error; } });
  await result.consumeStream();
}
const steps = await result.steps;

console.log(
  JSON.stringify({
    calls,
    finishes: steps.map((step) => step.finishReason.replace("-", "_")),
    answer: await result.text,
  }),
);
