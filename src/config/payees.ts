import { checksumAddress } from '../lib/keccak.ts';

export type Address = `0x${string}`;

export const ROTATION_STATUSES = ['current', 'next', 'retiring'] as const;
export type RotationStatus = (typeof ROTATION_STATUSES)[number];

export interface Payee {
  /** With EIP-55 checksum. */
  readonly address: Address;
  readonly status: RotationStatus;
  readonly validFrom: Date | undefined;
  readonly validUntil: Date | undefined;
}

export class PayeeError extends Error {}

const ENTRY = /^(?<address>0x[0-9a-fA-F]{40})(?::(?<status>[a-z]+)(?::(?<from>[^:]*)(?::(?<until>[^:]*))?)?)?$/;

/** Reads `X402_PAY_TO`: `address[:status[:validFrom[:validUntil]]]`, comma-separated, in UTC (R37). Throws PayeeError. */
export function parsePayees(setting: string): readonly Payee[] {
  const payees = setting.split(',').map((entry, index) => parsePayee(entry.trim(), index + 1));
  if (new Set(payees.map(({ address }) => address)).size !== payees.length) {
    throw new PayeeError('has the same address twice');
  }
  const current = payees.filter(({ status }) => status === 'current').length;
  if (current !== 1) throw new PayeeError(`has ${current} payees with the status current instead of one`);
  return payees;
}

function parsePayee(entry: string, position: number): Payee {
  const where = `has an invalid entry at position ${position}`;
  const { address, status = 'current', from, until } = ENTRY.exec(entry)?.groups ?? {};
  if (address === undefined) throw new PayeeError(where);
  const isMixed = /[a-f]/.test(address.slice(2)) && /[A-F]/.test(address.slice(2));
  if (isMixed && address !== checksumAddress(address))
    throw new PayeeError(`${where}: the address has a wrong checksum`);
  if (!isStatus(status)) throw new PayeeError(`${where}: the status must be one of ${ROTATION_STATUSES.join(', ')}`);
  const validFrom = parseDate(from, where);
  const validUntil = parseDate(until, where);
  if (validFrom && validUntil && validFrom >= validUntil)
    throw new PayeeError(`${where}: validUntil must be later than validFrom`);
  return { address: checksumAddress(address), status, validFrom, validUntil };
}

const isStatus = (status: string): status is RotationStatus =>
  (ROTATION_STATUSES as readonly string[]).includes(status);

function parseDate(text: string | undefined, where: string): Date | undefined {
  if (!text) return undefined;
  const date = new Date(`${text}T00:00:00Z`);
  if (!/^\d{4}-\d{2}-\d{2}$/.test(text) || Number.isNaN(date.getTime()) || !date.toISOString().startsWith(text)) {
    throw new PayeeError(`${where}: a date must have the form YYYY-MM-DD`);
  }
  return date;
}

export const currentPayee = (payees: readonly Payee[]): Payee =>
  payees.find(({ status }) => status === 'current') as Payee;

/** Payees that may be paid now: the current one, and retiring ones before their end (R45). */
export const payablePayees = (payees: readonly Payee[], now: Date): readonly Payee[] =>
  payees.filter(
    ({ status, validUntil }) =>
      status === 'current' || (status === 'retiring' && (validUntil === undefined || validUntil > now)),
  );
