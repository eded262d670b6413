import { keccak256 } from '../../lib/keccak.ts';
import type { Hex } from './envelope.ts';

// viem's own functions would load hundreds of modules, a fifth of the gateway's start.

export const numberToHex = (value: bigint): Hex => `0x${value.toString(16)}`;

/** The value as a word of 32 bytes. */
export const pad = (value: Hex): Hex => `0x${value.slice(2).padStart(64, '0')}`;

export const concat = (values: readonly Hex[]): Hex => `0x${values.map((value) => value.slice(2)).join('')}`;

export const toEventSelector = (signature: string): Hex =>
  `0x${Buffer.from(keccak256(Buffer.from(signature))).toString('hex')}`;

export const toFunctionSelector = (signature: string): Hex => toEventSelector(signature).slice(0, 10) as Hex;
