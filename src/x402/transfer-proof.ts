import { pad, type RpcTransactionReceipt, toEventSelector } from 'viem';
import type { Hex } from './envelope.ts';
import type { Address } from './payees.ts';

/** What an authorization promises to the payee; addresses and nonce in lower case. */
export interface TransferClaim {
  readonly payer: Address;
  readonly nonce: Hex;
  readonly payTo: Address;
  /** Atomic units. */
  readonly amount: bigint;
  /** Unix seconds. */
  readonly validBefore: bigint;
}

/** The transfer that used an authorization, in a successful receipt. */
export interface TransferProof {
  readonly transaction: Hex;
  /** Of the Transfer event within its block. */
  readonly logIndex: number;
  readonly block: bigint;
  readonly blockHash: Hex;
}

/** A transfer of the asset to one of the payees, as a successful receipt has it; addresses and nonce in lower case. */
export interface ReceivedTransfer extends TransferProof {
  /** Of the Transfer event among the asset's events of its transaction. */
  readonly position: number;
  readonly payer: Address;
  readonly payTo: Address;
  /** Atomic units. */
  readonly amount: bigint;
  /** Of the authorization that it used (EIP-3009); undefined for a transfer that its payer has sent in another way. */
  readonly nonce: Hex | undefined;
}

export const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
export const AUTHORIZATION_CANCELED = toEventSelector('AuthorizationCanceled(address,bytes32)');
export const TRANSFER = toEventSelector('Transfer(address,address,uint256)');

/** The length of one word in hexadecimal. */
const WORD = 66;

/**
 * The Transfer that the authorization made: the token's first event after AuthorizationUsed (EIP-3009 tokens mark first
 * and move then), with exactly the claimed payer, payee and amount. Other transfers of the transaction don't count.
 */
export function proofIn(
  receipt: RpcTransactionReceipt,
  asset: Address,
  claim: TransferClaim,
): TransferProof | undefined {
  return receivedIn(receipt, asset, [claim.payTo]).find(
    ({ payer, nonce, amount }) => payer === claim.payer && nonce === claim.nonce && amount === claim.amount,
  );
}

/** Every transfer of the asset to one of the payees that the receipt has. @param payees in lower case */
export function receivedIn(
  receipt: RpcTransactionReceipt,
  asset: Address,
  payees: readonly Address[],
): ReceivedTransfer[] {
  if (receipt.status !== '0x1') return [];
  const own = receipt.logs.filter(({ address }) => address.toLowerCase() === asset.toLowerCase());
  const toPayee = new Map(payees.map((payee) => [pad(payee), payee]));
  return own.flatMap(({ topics: [event, from, to], data, logIndex }, position) => {
    const payTo = toPayee.get(to as Hex);
    if (event !== TRANSFER || !from || !payTo || data.length !== WORD) return [];
    const before = own[position - 1]?.topics;
    const isAuthorized = before?.[0] === AUTHORIZATION_USED && before[1] === from;
    return {
      transaction: receipt.transactionHash.toLowerCase() as Hex,
      position,
      logIndex: Number(logIndex),
      block: BigInt(receipt.blockNumber),
      blockHash: receipt.blockHash,
      payer: `0x${from.slice(-40)}` as Address,
      payTo,
      amount: BigInt(data),
      nonce: isAuthorized ? before[2] : undefined,
    };
  });
}
