import { open, readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import { calculateJwkThumbprint } from 'jose';
import type { Hex } from 'viem';
import { UsageError } from '../../lib/arguments.ts';
import { type Cleaning, cleanText, TEXT_FORMATS } from '../../lib/clean-text.ts';
import { nearest } from '../../lib/misspelt.ts';
import { plainCatalog } from '../../speech/plain-catalog.ts';
import { findModel, findVoice, modelSlug } from '../bridge/catalog.ts';
import type { Flow, PinnedKey, Speechgate, SpeechOrder } from '../client/index.ts';
import { homePath } from './settings-folder.ts';

export function readBaseUrl(text: string, name: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isOrigin = url && /^https?:$/.test(url.protocol) && [`${url.origin}`, `${url.origin}/`].includes(url.href);
  if (isOrigin) return url.origin;
  throw new UsageError(
    `${name} must be an http or https URL without a path, such as https://speech.example, not ${text}.`,
  );
}

const FLOWS = { card: 'card', x402: 'direct', prepaid: 'prepaid' } as const;

export function readFlow(word: string, name: string): Flow {
  if (Object.hasOwn(FLOWS, word)) return FLOWS[word as keyof typeof FLOWS];
  throw new UsageError(`${name} must be one of ${Object.keys(FLOWS).join(', ')}, not ${word}.`);
}

export const flowWord = (flow: Flow): string => (flow === 'direct' ? 'x402' : flow);

/** The error never contains the key. */
export function readWalletKey(text: string, name: string): Hex {
  const [, , digits] = /^(0x)?([0-9a-f]{64})$/i.exec(text.trim()) ?? [];
  if (digits !== undefined) return `0x${digits.toLowerCase()}`;
  throw new UsageError(`${name} must be the private key of a wallet: 64 hexadecimal digits.`);
}

/** The whole id is a bearer secret, so only its start is displayed. */
export const maskedAccount = (accountId: string): string => `${accountId.slice(0, 8)}…`;

/** Reads standard input for `-`, a pipe, or a file that only this user can read. */
export async function readSecret(path: string, name: string, stdin: Readable): Promise<string> {
  if (path === '-') return (await readAll(stdin)).trim();
  const unreadable = () => {
    throw new UsageError(`The file of ${name} cannot be read. Name another file, or - for standard input.`);
  };
  const file = await open(path).catch(unreadable);
  try {
    const status = await file.stat();
    // A pipe leaves nothing on disk. Windows has no user ids to check.
    const own = status.isFile() ? process.geteuid?.() : undefined;
    if (own !== undefined && (status.uid !== own || (status.mode & 0o077) !== 0)) {
      throw new UsageError(
        `${name}: other users of this machine own ${path} or can read it, so it was not used. ` +
          `Put a new secret into a file of your own. If you are sure that nobody has read this one, run chmod 600 '${path}'.`,
      );
    }
    return (await file.readFile('utf8').catch(unreadable)).trim();
  } finally {
    await file.close();
  }
}

/** Reads a JWK Set, or a list as in the metadata, and drops private parts. @param source a path, or the JSON itself */
export async function readPinnedKeys(source: string, name: string): Promise<readonly PinnedKey[]> {
  const text = /^[[{]/.test(source) ? source : await readFile(homePath(source), 'utf8').catch(() => undefined);
  if (text === undefined) throw new UsageError(`The file of ${name}, ${source}, cannot be read. Name another file.`);
  const keys = listOf(text).map(readKey);
  if (keys.length > 0 && keys.every((key) => key !== undefined)) return keys;
  throw new UsageError(
    `${name} must contain P-256 public keys: a JWK Set, or a list of objects with keyId, publicKeyJwk and, if the key expires, validUntil (RFC 3339).`,
  );
}

function listOf(text: string): readonly unknown[] {
  try {
    const value = JSON.parse(text);
    const list = Array.isArray(value) ? value : value?.keys;
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

function readKey(value: unknown): PinnedKey | undefined {
  const key = (value ?? {}) as Readonly<Record<string, unknown>>;
  const keyId = key.keyId ?? key.kid;
  const { kty, crv, x, y } = (key.publicKeyJwk ?? key) as Readonly<Record<string, unknown>>;
  const validUntil = key.validUntil ?? undefined;
  if (typeof keyId !== 'string' || kty !== 'EC' || crv !== 'P-256') return undefined;
  if (typeof x !== 'string' || typeof y !== 'string') return undefined;
  const publicKeyJwk = { kty, crv, x, y };
  if (validUntil === undefined) return { keyId, publicKeyJwk };
  if (typeof validUntil !== 'string' || Number.isNaN(Date.parse(validUntil))) return undefined;
  return { keyId, publicKeyJwk, validUntil };
}

/** The SHA-256 thumbprint of a public key (RFC 7638), in base64url. */
export const fingerprintOf = ({ publicKeyJwk }: PinnedKey): Promise<string> => calculateJwkThumbprint(publicKeyJwk);

export const CLEAN_OPTIONS = {
  clean: { type: 'string' },
  'no-emoji': { type: 'boolean', default: false },
} as const;

export interface CleaningValues {
  readonly clean?: string;
  readonly 'no-emoji': boolean;
}

export function readCleaning({ clean = 'off', 'no-emoji': noEmoji }: CleaningValues): Cleaning {
  const format = TEXT_FORMATS.find((each) => each === clean);
  if (format) return { format, emoji: !noEmoji };
  throw new UsageError(`--clean must be one of ${TEXT_FORMATS.join(', ')}, not ${clean}. Nothing was bought.`);
}

export const SPEECH_OPTIONS = {
  ...CLEAN_OPTIONS,
  voice: { type: 'string' },
  model: { type: 'string' },
  speed: { type: 'string' },
} as const;

export const SPEECH_USAGE = `
  TEXT             the text; - reads it from standard input
  --voice VOICE    a voice from speechgate voices
  --model MODEL    a model from speechgate models
  --speed SPEED    0.5 to 2; default: 1
  --clean FORMAT   speaks only the words of a text in markdown or html, without code blocks; default: off
  --no-emoji       leaves emoji out`;

interface SpeechValues {
  readonly voice?: string;
  readonly model?: string;
  readonly speed?: string;
}

export async function readOrder(
  values: SpeechValues & CleaningValues,
  word: string | undefined,
  stdin: Readable,
): Promise<SpeechOrder> {
  const cleaning = readCleaning(values);
  return orderOf(cleanText(await readText(word, 'The text', stdin), cleaning), values);
}

/** @param text without markup */
export function orderOf(text: string, { voice, model, speed }: SpeechValues): SpeechOrder {
  if (text === '') {
    throw new UsageError(
      'The text has no words to speak; markup, code and emoji that --clean or --no-emoji removes do not count. Nothing was bought.',
    );
  }
  return {
    text,
    ...(model !== undefined && { model }),
    ...(voice !== undefined && { voice }),
    ...(speed !== undefined && { speed: readSpeed(speed) }),
  };
}

type SpeechNames = Pick<SpeechOrder, 'model' | 'voice'>;

/** The ids of model and voice, whose names may lack the provider. @throws UsageError for unknown ones */
export async function idsOf({ model, voice }: SpeechNames, client: Speechgate): Promise<SpeechNames> {
  if (model === undefined && voice === undefined) return {};
  const catalog = plainCatalog(await client.models());
  const found = findModel(catalog, model ?? catalog.defaultModel);
  if (!found) {
    const names = catalog.models.flatMap(({ id }) => [id, modelSlug(id)]);
    throw unknownName(
      `There is no model ${model}.`,
      nearest(model ?? '', names),
      'speechgate models lists the models.',
    );
  }
  const named = model === undefined ? {} : { model: found.id };
  if (voice === undefined) return named;
  const foundVoice = findVoice(found, voice);
  if (foundVoice) return { ...named, voice: foundVoice.id };
  const names = found.voices.flatMap((each) => [each.id, each.voice]);
  throw unknownName(
    `The model ${found.id} has no voice ${voice}.`,
    nearest(voice, names),
    `speechgate voices --model ${found.id} lists its voices.`,
  );
}

function unknownName(fault: string, meant: string | undefined, list: string): UsageError {
  return new UsageError(`${fault} ${meant === undefined ? list : `Did you mean ${meant}?`} Nothing was bought.`);
}

export async function readText(word: string | undefined, name: string, stdin: Readable): Promise<string> {
  if (word === undefined)
    throw new UsageError(
      `${name} is missing. Put it in quotes, or pass - and pipe it to standard input. Nothing was sent.`,
    );
  const text = word === '-' ? await readAll(stdin) : word;
  if (text.trim() === '') throw new UsageError(`${name} is empty. Pass some text. Nothing was sent.`);
  return text;
}

function readSpeed(text: string): number {
  const speed = Number(text);
  if (text.trim() !== '' && speed >= 0.5 && speed <= 2) return speed;
  throw new UsageError(`--speed must be a number from 0.5 to 2, not ${text}. Nothing was bought.`);
}
