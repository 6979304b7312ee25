// A deployer, as `kadi deploy` is one, written with the KADI client (@kadi.build/core) for
// test_real_deployer.py. argv[2] is the client's module. The first line of standard input is the
// plan: {url, networks, nonce, secrets, answers}. Notes go to standard output, a JSON object a
// line. It ends with its standard input.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const { KadiClient, convertToEncryptionKey } = await import(pathToFileURL(process.argv[2]));
const sealedbox = createRequire(process.argv[2])('tweetnacl-sealedbox-js');

const tell = (note) => process.stdout.write(JSON.stringify(note) + '\n');
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const plan = JSON.parse((await lines.next()).value);

const broker = { url: plan.url, ...(plan.networks && { networks: plan.networks }) };
const client = new KadiClient({ name: 'deployer', brokers: { local: broker } });

const seal = (secrets, publicKey) => {
  const text = new TextEncoder().encode(JSON.stringify(secrets));
  return Buffer.from(sealedbox.seal(text, convertToEncryptionKey(publicKey))).toString('base64');
};

const answers = {
  approval({ publicKey, required, optional }) {
    const asked = [...required, ...optional].filter((name) => name in plan.secrets);
    const secrets = Object.fromEntries(asked.map((name) => [name, plan.secrets[name]]));
    return { status: 'approved', encrypted: seal(secrets, publicKey), sharedAt: Date.now() };
  },
  rejection: () => ({ status: 'rejected', reason: 'not approved', rejectedAt: Date.now() }),
  forAnother: () => ({
    status: 'approved',
    encrypted: seal(plan.secrets, client.identity.publicKey),
  }),
  garbage: () => ({ status: 'approved', encrypted: Buffer.alloc(100).toString('base64') }),
  withoutStatus: () => ({ encrypted: 'AAAA' }),
  text: () => 'approved',
};

const answer = async ({ data, source }) => {
  tell({
    request: data,
    source,
    encryptionKey: Buffer.from(convertToEncryptionKey(data.publicKey)).toString('hex'),
  });
  const channel = `secrets.response.${data.agentId}`;
  if (data.nonce !== plan.nonce) {
    await client.publish(channel, { status: 'rejected', reason: 'unknown nonce' });
    return;
  }
  for (const name of plan.answers) {
    await client.publish(channel, answers[name](data));
  }
  tell({ answered: plan.answers });
};

await client.connect();
await client.subscribe('secrets.request', answer);
tell({ ready: client.agentId });
await lines.next();
await client.disconnect();
process.exit(0);
