import { type ByteRange, type StoredAudio, StoreError } from '../../speech/store/audio-store.ts';
import type { LinkSigner } from '../../speech/store/link-token.ts';
import { AUDIO_STORE_UNAVAILABLE } from '../config-errors.ts';
import type { OperationContext } from '../operations.ts';
import { PRIVATE_CACHE } from '../reply.ts';
import { errorBody, failure } from '../structured-error.ts';

const EXTENSIONS = { 'audio/mpeg': 'mp3', 'audio/wav': 'wav' } as const;

export interface StoredObject<Type extends keyof typeof EXTENSIONS> {
  open(range?: ByteRange): Promise<StoredAudio | undefined>;
  readonly mimeType: Type;
  readonly sizeBytes: number;
}

export interface AudioLink {
  readonly signer: LinkSigner | undefined;
  readonly sig: string | undefined;
  readonly id: string;
  readonly parameter: string;
  readonly hints: { readonly invalid: string; readonly missing: string };
  readonly headers: Readonly<{ range?: string | undefined; 'if-range'?: string | undefined }>;
}

export const answerStoredAudio = <Type extends keyof typeof EXTENSIONS, Refusal extends { status: number }>(
  link: AudioLink,
  context: OperationContext,
  find: () => Promise<StoredObject<Type> | Refusal>,
) =>
  answerLink(link, context, async () => {
    const found = await find();
    if ('status' in found) return { outcome: 'refused', refusal: found };
    return { outcome: 'found', answer: () => serve(found, link, context) };
  });

type Linked<Answer, Refusal> =
  | { readonly outcome: 'found'; answer(): Answer | Promise<Answer> }
  | { readonly outcome: 'refused'; readonly refusal: Refusal };

/**
 * Serves what a link names, with checks in the order of R50. `sig` is required where links are signed. Without a valid
 * one the address takes a slot (R13, R48).
 */
export async function answerLink<Answer, Refusal>(
  link: AudioLink,
  context: OperationContext,
  find: () => Promise<Linked<Answer, Refusal>>,
) {
  const { signer, sig, id, hints } = link;
  try {
    // Undefined without a `sig`, which is refused only if there is audio, and where links are not signed.
    const isSigned = signer && sig !== undefined ? await signer.verify(sig, id) : undefined;
    const limited = await context.rateLimits.take('request', isSigned ? sig : undefined);
    if (limited) return limited;
    if (isSigned === false) {
      const message = `sig is invalid or has expired. ${hints.invalid}`;
      return failure('UNAUTHORIZED', message, { field: 'sig', rule: 'signature' });
    }
    const found = await find();
    if (found.outcome === 'refused') return found.refusal;
    if (signer && !isSigned) {
      return failure('UNAUTHORIZED', `sig is missing. ${hints.missing}`, { field: 'sig', rule: 'required' });
    }
    return await found.answer();
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    context.log.error(
      { err: error },
      'failed to read stored audio from the audio store. The caller got 503 and can repeat the request without a new charge. Read err for the cause',
    );
    return AUDIO_STORE_UNAVAILABLE;
  }
}

async function serve<Type extends keyof typeof EXTENSIONS>(
  { open, mimeType, sizeBytes }: StoredObject<Type>,
  { id, parameter, headers: asked }: AudioLink,
  { method }: OperationContext,
) {
  const shared = {
    'cache-control': PRIVATE_CACHE,
    'content-disposition': `inline; filename="speech-${id}.${EXTENSIONS[mimeType]}"`,
  } as const;
  const served = await serveRange({ open, sizeBytes, shared }, asked, method);
  if (!served) {
    const message = 'The stored audio no longer exists. To get the speech, make a new request, which is charged again.';
    return failure('NOT_FOUND', message, { field: parameter });
  }
  return served.status === 416 ? served : { ...served, type: mimeType };
}

interface ServedObject<Shared> {
  open(range?: ByteRange): Promise<Pick<StoredAudio, 'stream'> | undefined>;
  readonly sizeBytes: number;
  /** Headers of its audio. */
  readonly shared: Shared;
}

/** Serves the bytes that are asked for; undefined if they are gone. */
export async function serveRange<Shared extends object>(
  { open, sizeBytes, shared }: ServedObject<Shared>,
  asked: AudioLink['headers'],
  method: string,
) {
  // HEAD ignores ranges.
  const range = parseRange(method === 'GET' && asked['if-range'] === undefined ? asked.range : undefined, sizeBytes);
  if (range === 'unsatisfiable') {
    const details = { field: 'range', rule: 'satisfiable', sizeBytes };
    return {
      status: 416 as const,
      headers: { 'content-range': `bytes */${sizeBytes}` },
      body: errorBody('INVALID_REQUEST', `range must begin within the ${sizeBytes} bytes of the audio.`, details),
    };
  }
  const found = await open(range === 'whole' ? undefined : range);
  if (!found) return undefined;
  const { stream: body } = found;
  const headers = { ...shared, 'accept-ranges': 'bytes' } as const;
  if (range === 'whole') return { status: 200 as const, headers: { ...headers, 'content-length': sizeBytes }, body };
  const part = {
    'content-length': range.end - range.start + 1,
    'content-range': `bytes ${range.start}-${range.end}/${sizeBytes}`,
  };
  return { status: 206 as const, headers: { ...headers, ...part }, body };
}

const ONE_RANGE = /^(?<first>\d*)-(?<last>\d*)$/;

/** Reads a `Range` header (RFC 9110, 14). Several ranges, another unit and an invalid header mean the whole object. */
export function parseRange(header: string | undefined, size: number): ByteRange | 'whole' | 'unsatisfiable' {
  const [, set = ''] = /^bytes=(.*)$/i.exec(header ?? '') ?? [];
  const ranges = set
    .split(',')
    .map((range) => range.trim())
    .filter(Boolean);
  const { first, last } = (ranges.length === 1 && ONE_RANGE.exec(ranges[0] as string)?.groups) || {};
  if (first) {
    const start = Number(first);
    if (last && Number(last) < start) return 'whole';
    if (start >= size) return 'unsatisfiable';
    return { start, end: last ? Math.min(Number(last), size - 1) : size - 1 };
  }
  if (!last) return 'whole';
  const length = Number(last);
  if (length === 0) return 'unsatisfiable';
  return size === 0 ? 'whole' : { start: Math.max(0, size - length), end: size - 1 };
}
