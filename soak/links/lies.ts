import { bytesToHex } from 'viem';
import type { Random } from '../random.ts';
import type { OutsideName } from '../world/world.ts';
import type { Break } from './breaks.ts';
import type { Answer, Breaker, Exchange } from './http-link.ts';
import { laggingNode } from './lagging-node.ts';

const answerOf = (body: string | Buffer, contentType = 'application/json', status = 200): Answer => ({
  status,
  headers: { 'content-type': contentType },
  body: Buffer.from(body),
});

const told =
  (...answers: readonly Answer[]): Break['begin'] =>
  (random) => {
    const answer = random.pick(answers);
    return (exchange) => exchange.answer(answer);
  };

const NONSENSE = [
  answerOf('<!doctype html><title>Welcome</title>', 'text/html'),
  answerOf('null'),
  answerOf('[]'),
  answerOf('{}'),
  answerOf('"yes"'),
  answerOf('', 'text/plain'),
];

/** On some paths only; the other ones are handed on. */
const on =
  (path: RegExp, breaker: Breaker): Breaker =>
  (exchange) =>
    path.test(exchange.path) ? breaker(exchange) : exchange.relay();

const changed = async (exchange: Exchange, change: (answer: Answer) => Answer): Promise<void> =>
  exchange.answer(change(await exchange.pass()));

const hash = (random: Random) => bytesToHex(Uint8Array.from({ length: 32 }, () => random.between(0, 255)));

/** Of a settlement that was made, that it was not. */
const failed = (random: Random): Answer =>
  answerOf(
    JSON.stringify({
      success: false,
      errorReason: random.pick([
        'unexpected_settle_error',
        'settlement_pending',
        'invalid_exact_evm_nonce_already_used',
        'insufficient_funds',
        'invalid_exact_evm_payload_signature',
      ]),
      transaction: '',
      network: 'eip155:8453',
    }),
  );

/** @param transaction that is claimed to be the settlement's */
const settled = (transaction: string): Answer =>
  answerOf(JSON.stringify({ success: true, transaction, network: 'eip155:8453' }));

/** An earlier answer of the facilitator's that names a transaction, where there was one. */
function foreignTransaction(): Breaker {
  let former: string | undefined;
  return on(/\/settle$/, (exchange) =>
    changed(exchange, (answer) => {
      const named = transactionIn(answer);
      const other = former;
      former = named ?? former;
      return other === undefined || other === named ? answer : settled(other);
    }),
  );
}

function transactionIn({ body }: Answer): string | undefined {
  try {
    const { transaction } = JSON.parse(body.toString());
    return typeof transaction === 'string' && transaction !== '' ? transaction : undefined;
  } catch {
    return undefined;
  }
}

/**
 * What each part may say that is not so. Only what the service promises to withstand (docs/threats.md): it believes its
 * processor, the audio store about what that keeps, and the chain two blocks deep.
 */
export const LIES: Readonly<Record<OutsideName, readonly Break[]>> = {
  upstream: [
    {
      name: 'no audio',
      begin: told(...NONSENSE, answerOf('', 'audio/mpeg'), answerOf('Z'.repeat(2_000), 'audio/mpeg')),
    },
    {
      name: 'audio without its end',
      // In the middle of a frame.
      begin: () => (exchange) => changed(exchange, (answer) => ({ ...answer, body: answer.body.subarray(0, -100) })),
    },
    {
      name: 'audio under another type',
      begin: (random) => {
        const type = random.pick(['text/html', 'application/json', 'image/png']);
        return (exchange) =>
          changed(exchange, (answer) => ({ ...answer, headers: { ...answer.headers, 'content-type': type } }));
      },
    },
  ],
  facilitator: [
    { name: 'nonsense', begin: told(...NONSENSE) },
    {
      name: 'everything is valid',
      begin: () => on(/\/verify$/, (exchange) => exchange.answer(answerOf('{"isValid":true}'))),
    },
    {
      name: 'nothing is valid',
      begin: () =>
        on(/\/verify$/, (exchange) =>
          exchange.answer(answerOf('{"isValid":false,"invalidReason":"insufficient_funds"}')),
        ),
    },
    {
      name: 'settled, and nothing was sent',
      begin: (random) => on(/\/settle$/, (exchange) => exchange.answer(settled(hash(random)))),
    },
    { name: "another payment's transaction", begin: () => foreignTransaction() },
    {
      name: 'failed, though it has settled',
      begin: (random) => on(/\/settle$/, (exchange) => changed(exchange, () => failed(random))),
    },
    { name: 'failed, and nothing was sent', begin: (random) => on(/\/settle$/, (each) => each.answer(failed(random))) },
  ],
  node: [
    {
      name: 'nonsense',
      begin: told(
        ...NONSENSE,
        answerOf('{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"overloaded"}}'),
        answerOf('{"jsonrpc":"2.0","id":1,"result":"0x"}'),
      ),
    },
    { name: 'a few blocks behind', begin: (random) => laggingNode(BigInt(random.between(1, 6))) },
  ],
  checkout: [
    {
      name: 'nonsense',
      begin: told(
        ...NONSENSE,
        answerOf(
          '{"id":"cs_test_other","payment_status":"paid","amount_total":500,"data":[null,7,{"payment_status":"paid"}]}',
        ),
        answerOf('{"error":{"type":"invalid_request_error"}}', 'application/json', 401),
        answerOf('{}', 'application/json', 404),
      ),
    },
  ],
  store: [],
};
