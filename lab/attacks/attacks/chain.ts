import type { PaymentPayload } from '@x402/core/types';
import type { Address, Hex } from 'viem';
import { cancelAuthorization, included, submitAuthorization } from '../../../test/support/chain.ts';
import { nonceOf } from '../../../test/support/x402.ts';
import type { Attack } from '../attack.ts';
import type { Attempt } from '../attempt.ts';
import { drain } from '../chain.ts';

/** `happen` acts on the chain between verification and settlement. */
const meanwhile = (name: string, happen: (attempt: Attempt, payment: PaymentPayload) => Promise<unknown>): Attack => ({
  name,
  right: 'failed',
  waits: true,
  attempt: (attempt) =>
    attempt.buy(attempt.post(), {
      settle: async (payment) => {
        await happen(attempt, payment);
        return undefined;
      },
    }),
});

const FIELDS = ['value', 'validAfter', 'validBefore'] as const;

/** Executes the authorization without the facilitator. */
async function submit({ world, payer }: Attempt, { payload }: PaymentPayload): Promise<void> {
  const { authorization: written, signature } = payload as { authorization: Record<string, string>; signature: Hex };
  const [value, validAfter, validBefore] = FIELDS.map((field) => BigInt(written[field] as string)) as [
    bigint,
    bigint,
    bigint,
  ];
  const { from, to, nonce } = written as { from: Address; to: Address; nonce: Hex };
  const authorization = { from, to, value, validAfter, validBefore, nonce };
  const { client } = world.chain;
  await included(client, submitAuthorization(client, payer, { authorization, signature }));
}

export const CHAIN_EVENTS: readonly Attack[] = [
  meanwhile('the authorization is cancelled between verify and settle', ({ world, payer }, payment) =>
    included(world.chain.client, cancelAuthorization(world.chain.client, payer, nonceOf(payment))),
  ),
  meanwhile('the wallet is emptied between verify and settle', ({ world, payer }) => drain(world.chain.client, payer)),
  meanwhile('the authorization is executed by somebody else before settle', submit),
  {
    name: 'one wallet, with money for one, pays five requests at once',
    right: 'failed',
    attempt: async (attempt) => {
      const { client } = attempt.world.chain;
      const asks = Array.from({ length: 5 }, () => attempt.prepare(attempt.post()));
      const prepared = await Promise.all(asks);
      await drain(client, attempt.payer, attempt.price);
      await Promise.all(prepared.map(({ paid }) => attempt.politely(paid)));
    },
  },
  {
    name: "the server's node is away from verify on",
    right: 'failed',
    atOnce: 50,
    meanwhile: async (target) => target.cutNode(),
    attempt: async (attempt) => {
      const { paid } = await attempt.prepare(attempt.post(), {
        settle: async () => {
          await attempt.gathering.arrive(attempt);
          return undefined;
        },
      });
      await attempt.send(paid);
      await attempt.gathering.arrive(attempt);
      attempt.target.restoreNode();
      await attempt.politely(paid);
    },
  },
];
