// Runs KADI clients (@kadi.build/core) for real_client.py: one JSON command a line on standard
// input, one answer or note a line on standard output. argv[2] is the module of the client.

import { createHash } from 'node:crypto';
import { subscribe } from 'node:diagnostics_channel';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { format, inspect } from 'node:util';

const { KadiClient, z } = await import(pathToFileURL(process.argv[2]));

const clients = new Map(); // name -> KadiClient
const abilities = new Map(); // number -> LoadedAbility
const streams = new Map(); // number -> function that ends the subscription
const calls = new Map(); // number -> resolve and reject of a call that Python answers
let last = 0;

const tell = (message) => process.stdout.write(JSON.stringify(message) + '\n');
for (const level of ['log', 'warn', 'error']) {
  console[level] = (...args) => tell({ note: 'log', level, text: format(...args) });
}
// A connection lost before a call is acknowledged leaves a promise that the client drops.
process.on('unhandledRejection', (error) => console.error('unhandled:', error.message));
subscribe('child_process', ({ process: child }) => {
  child.once('exit', (code, signal) => tell({ note: 'exit', code, signal }));
});

/** What a registered tool does; the others are answered by Python. */
const behaviours = {
  echo: async (input) => input,
  value: async ({ value }) => value,
  embed: async ({ input, model }) => ({
    // Not in the order of the texts, as the protocol allows.
    data: input.map((text, index) => ({ index, embedding: vector(text) })).reverse(),
    model,
  }),
};

/** Texts that share words point the same way. */
function vector(text) {
  const found = new Array(16).fill(0.01);
  for (const word of text.toLowerCase().match(/\w+/g) ?? []) {
    const digest = createHash('sha256').update(word).digest();
    found[digest[0] % 16] += 1;
    found[digest[1] % 16] += 0.5;
  }
  return found;
}

function fromPython(client, tool) {
  return (input, context) =>
    new Promise((resolve, reject) => {
      calls.set(++last, { resolve, reject });
      tell({ note: 'called', call: last, client, tool, input, context });
    });
}

function stream(end) {
  const number = ++last;
  streams.set(number, () => end(handler));
  const handler = (value) => tell({ note: 'event', stream: number, value });
  return [number, handler];
}

const commands = {
  create({ client, config }) {
    const made = new KadiClient(config);
    clients.set(client, made);
    return made.identity;
  },
  connect: ({ client, broker }) => clients.get(client).connect(broker),
  connected: ({ client }) => clients.get(client).getConnectedBrokers(),
  disconnect: ({ client, broker }) => clients.get(client).disconnect(broker),
  registerTool({ client, tool, behaviour, fields, options }) {
    const shape = Object.entries(fields).map(([name, type]) => [name, z[type]()]);
    const input = z.object(Object.fromEntries(shape));
    const handler = behaviours[behaviour] ?? fromPython(client, tool);
    clients.get(client).registerTool({ name: tool, description: tool, input }, handler, options);
  },
  answer({ call, result, error }) {
    const { resolve, reject } = calls.get(call);
    calls.delete(call);
    error === undefined ? resolve(result) : reject(new Error(error));
  },
  invokeRemote: ({ client, tool, input, options }) =>
    clients.get(client).invokeRemote(tool, input, options),
  /** The result as JavaScript prints it: JSON knows neither -0 nor undefined. */
  inspectRemote: async ({ client, tool, input }) =>
    inspect(await clients.get(client).invokeRemote(tool, input), { depth: null }),
  /** A request of any method, under an id of its own: the client's may be in use twice. */
  request({ client, method, params }) {
    const agent = clients.get(client);
    const request = { jsonrpc: '2.0', id: `own-${++last}`, method, params };
    return agent.sendRequest(agent.getBrokerState('local'), request);
  },
  async loadBroker({ client, name, options }) {
    abilities.set(++last, await clients.get(client).loadBroker(name, options));
    return last;
  },
  async loadStdio({ client, name, options }) {
    abilities.set(++last, await clients.get(client).loadStdio(name, options));
    return last;
  },
  describe({ ability }) {
    const { name, transport, getTools } = abilities.get(ability);
    return { name, transport, tools: getTools() };
  },
  invoke: ({ ability, tool, input, options }) =>
    abilities.get(ability).invoke(tool, input, options),
  leave: ({ ability }) => abilities.get(ability).disconnect(),
  on({ ability, pattern }) {
    const [number, handler] = stream((own) => abilities.get(ability).off(pattern, own));
    abilities.get(ability).on(pattern, handler);
    return number;
  },
  async subscribe({ client, pattern }) {
    const agent = clients.get(client);
    const [number, handler] = stream((own) => agent.unsubscribe(pattern, own));
    await agent.subscribe(pattern, handler);
    return number;
  },
  end: ({ stream: number }) => streams.get(number)(),
  publish: ({ client, channel, data, options }) =>
    clients.get(client).publish(channel, data, options),
  async requestSecrets({ client, environment, options }) {
    Object.assign(process.env, environment);
    try {
      return await clients.get(client).requestSecrets(options);
    } finally {
      Object.keys(environment).forEach((name) => delete process.env[name]);
    }
  },
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { id, command, ...args } = JSON.parse(line);
  // Not awaited: commands overlap.
  Promise.resolve()
    .then(() => commands[command](args))
    .then((value) => tell({ id, value }))
    .catch(({ message, code, context }) => tell({ id, error: { message, code, context } }));
}
process.exit(0);
