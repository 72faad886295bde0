// Drives the npm package `openai` against a running server: node client.mjs BASE_URL MODEL
// Prints one JSON object with everything it received.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "hello" }];
const seen = {};

seen.models = (await client.models.list()).data.map((card) => card.id);

const whole = await client.chat.completions.create({ model, messages, n: 2, logprobs: true, top_logprobs: 1 });
seen.chat = whole.choices.map((choice) => [choice.message.content, choice.finish_reason]);
seen.usage = whole.usage;
seen.tokens = whole.choices[0].logprobs.content.map((entry) => entry.token);

const stream = await client.chat.completions.create({
  model,
  messages,
  stream: true,
  stop: ["lo"],
  stream_options: { include_usage: true },
});
seen.streamed = { role: null, text: "", finish: [], usage: null };
for await (const chunk of stream) {
  const choice = chunk.choices[0];
  seen.streamed.role ??= choice?.delta.role ?? null;
  seen.streamed.text += choice?.delta.content ?? "";
  if (choice?.finish_reason) seen.streamed.finish.push(choice.finish_reason);
  seen.streamed.usage = chunk.usage ?? seen.streamed.usage;
}

const helper = client.chat.completions.stream({ model, messages });
seen.helper = (await helper.finalChatCompletion()).choices[0].message.content;

seen.completion = (await client.completions.create({ model, prompt: "abc", echo: true, max_tokens: 2 })).choices[0].text;
seen.completionStream = "";
for await (const chunk of await client.completions.create({ model, prompt: "abc", stream: true })) {
  seen.completionStream += chunk.choices[0].text;
}

const fault = await client.chat.completions.create({ model, messages, temperature: 9 }).catch((error) => error);
seen.fault = { kind: fault.constructor.name, status: fault.status, param: fault.param };

// leaving the loop aborts the request
const endless = await client.completions.create({ model, prompt: "abc", stream: true, max_tokens: 500, ignore_eos: true });
for await (const chunk of endless) {
  seen.first = chunk.choices[0].text.slice(0, 1);
  break;
}

console.log(JSON.stringify(seen));
