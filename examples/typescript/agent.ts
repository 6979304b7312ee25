// An agent on the KADI client for TypeScript, @kadi.build/core, beside agents in Python.
//
//     node agent.ts          (Node.js 22.18 or later)
//
// It serves the tool `quote`, which calls `search-query` of the search ability, and prints the
// events of all indexing on the network. The broker is BROKER_URL, or the one of
// `ability-search up`. Ctrl-C ends it.

import { KadiClient, z, type BrokerEvent } from '@kadi.build/core';

interface Hit {
  source: string;
  content: string;
  score: number;
}

// A tool that fails answers so: invokeRemote() does not throw.
interface Failure {
  success: false;
  error: string;
  code: string;
  hint: string;
  retryable: boolean;
}

type Found = Failure | { success?: true; results: Hit[] };

const client = new KadiClient({
  name: 'quoter',
  version: '1.0.0',
  brokers: {
    local: { url: process.env.BROKER_URL ?? 'ws://localhost:8080/kadi', networks: ['global'] },
  },
});

client.registerTool(
  {
    name: 'quote',
    description: 'Quote the passage of a collection that answers a question best.',
    input: z.object({ collection: z.string(), question: z.string() }),
  },
  async ({ collection, question }) => {
    const found = await client.invokeRemote<Found>(
      'search-query',
      { collection, query: question, limit: 1 },
      { timeout: 30_000 }, // the default is ten minutes
    );
    if (found.success === false) {
      return found; // the caller reads code and hint, whatever its language
    }
    const [best] = found.results;
    return best ? { source: best.source, text: best.content } : {};
  },
);

function show(event: BrokerEvent): void {
  console.log(event.channel, JSON.stringify(event.data));
}

// The client reconnects by itself, but subscribes to nothing then. Subscribing again is harmless:
// it sends a request only if this connection has no subscription of that pattern yet.
async function subscribe(): Promise<void> {
  if (client.isConnected()) {
    await client.subscribe('search.index.#', show);
  }
}

await client.connect(); // throws only if no broker at all can be reached
await subscribe();
const resubscribing = setInterval(() => subscribe().catch(console.error), 1000);
console.log(`ready as ${client.agentId}`);

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    clearInterval(resubscribing);
    void client.disconnect();
  });
}
