import type { RpcTransactionReceipt } from 'viem';
import type { Asset } from '../../config/network.ts';
import type { Address } from '../../config/payees.ts';
import { domainSeparator, recoverAddress, signingDigest, structHasher } from '../../lib/wallet-signature.ts';
import { pad, toEventSelector } from './abi.ts';
import type { Hex, PaymentEnvelope } from './envelope.ts';
import { TRANSFER_TYPES } from './signed-types.ts';

/** What an authorization promises the payee; addresses and nonce are in lower case. */
export interface TransferClaim {
  readonly payer: Address;
  readonly nonce: Hex;
  readonly payTo: Address;
  readonly amount: bigint;
  readonly validBefore: bigint;
}

export interface TransferProof {
  readonly transaction: Hex;
  readonly logIndex: number;
  readonly block: bigint;
  readonly blockHash: Hex;
}

/** A transfer of the asset to a payee in a successful receipt; addresses and nonce are in lower case. */
export interface ReceivedTransfer extends TransferProof {
  readonly position: number;
  readonly payer: Address;
  readonly payTo: Address;
  readonly amount: bigint;
  /** Of the authorization that it used (EIP-3009); undefined for any other kind of transfer. */
  readonly nonce: Hex | undefined;
}

export const AUTHORIZATION_USED = toEventSelector('AuthorizationUsed(address,bytes32)');
export const AUTHORIZATION_CANCELED = toEventSelector('AuthorizationCanceled(address,bytes32)');
export const TRANSFER = toEventSelector('Transfer(address,address,uint256)');

const WORD = 66;

/** The token's first event after AuthorizationUsed (EIP-3009 tokens emit in this order), with the claimed values. */
export function proofIn(receipt: RpcTransactionReceipt, asset: Address, claim: TransferClaim) {
  return receivedIn(receipt, asset, [claim.payTo]).find(
    ({ payer, nonce, amount }) => payer === claim.payer && nonce === claim.nonce && amount === claim.amount,
  );
}

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

/** Depth at which a transfer is credited (R35); its own block counts as the first (R44). */
export const CONFIRMATIONS = 2;

export const newestConfirmed = (head: bigint): bigint => head - BigInt(CONFIRMATIONS - 1);

export const hashTransfer = structHasher('TransferWithAuthorization', TRANSFER_TYPES.TransferWithAuthorization);

/** Ends the signature of a contract that is not deployed yet (ERC-6492). */
const UNDEPLOYED = /(?:6492){16}$/;

export const isOfUndeployed = (signature: string): boolean => UNDEPLOYED.test(signature);

const separatorOf = ({ name, version, chainId, address }: Asset): Uint8Array =>
  domainSeparator({ name, version, chainId, verifyingContract: address });

/** Whether the token's DOMAIN_SEPARATOR is the one of its configured name and version. */
export const isConfiguredDomain = (separator: bigint, asset: Asset): boolean =>
  separator === BigInt(`0x${Buffer.from(separatorOf(asset)).toString('hex')}`);

/** Whether the key of the payer's address signed the payment (EIP-3009, EIP-712). */
export function isSignedByPayer(
  { authorization, signature }: Pick<PaymentEnvelope, 'authorization' | 'signature'>,
  asset: Asset,
): boolean {
  const nonce = Buffer.from(authorization.nonce.slice(2), 'hex');
  const digest = signingDigest(separatorOf(asset), hashTransfer({ ...authorization, nonce }));
  return recoverAddress(digest, signature) === authorization.from;
}
