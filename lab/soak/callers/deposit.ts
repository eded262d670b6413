import { fund } from '../../../src/sandbox/chain/fund.ts';
import { type KeyedWallet, keyedWallet } from '../../signers/keyed-wallet.ts';
import { jsonPost } from './card.ts';
import { PURSE, settle } from './direct.ts';
import { drawHangUp } from './draws.ts';
import type { Open } from './flow.ts';
import { jsonOf, type Operation, type Outcome } from './operation.ts';
import { endOfUnserved, payRequest } from './payment.ts';

/** Range of one deposit in micro-USDC: above the price of any speech, so that its transfer tells what it is for. */
const LEAST = 150_000;
const MOST = 250_000;

/** Deposits, retried until they are credited. */
export const openDeposit: Open = async ({ world, key }) => {
  const wallet = keyedWallet(key);
  await fund(world.chain, wallet.address, { usdc: PURSE });
  const buy = (operation: Operation) => deposit(operation, wallet, operation.random.between(LEAST, MOST));
  return { customer: { longestPauseMs: 500, buy }, bought: [] };
};

export async function deposit(operation: Operation, wallet: KeyedWallet, amountMicroUsd: number): Promise<Outcome> {
  const { random } = operation;
  const does = random.weighted([
    [10, 'pays'],
    [2, 'pays at both'],
    [2, 'hangs up'],
    [1, 'repeats'],
  ] as const);
  const payment = await payRequest(operation, wallet, jsonPost('/x402/deposit', { amountMicroUsd }));
  const come = (end: Outcome['end']): Outcome => ({
    ...{ flow: 'deposit', end, amountMicroUsd: BigInt(amountMicroUsd) },
    keys: { payer: wallet.address, ...(payment && { nonce: payment.nonce, paymentId: payment.identifier }) },
  });
  if (payment === undefined) return come('open');
  if (does === 'hangs up') await operation.pay(payment.sent, drawHangUp(random, 1));
  const [first] = await Promise.all([
    settle(operation, payment),
    ...(does === 'pays at both' ? [settle(operation, payment)] : []),
  ]);
  if (first === undefined) return come('open');
  if (first.status !== 200) return come(endOfUnserved(first));
  if (does === 'repeats') {
    const again = await settle(operation, payment);
    const { alreadyCredited, creditedMicroUsd } = (again && jsonOf(again)) ?? {};
    if (alreadyCredited !== true || creditedMicroUsd !== 0) operation.isWrong('a repeated deposit was credited again');
  }
  return come('served');
}
