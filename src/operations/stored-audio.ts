import { type AudioStore, StoreError } from '../audio/audio-store.ts';
import type { LinkSigner } from '../audio/link-token.ts';
import { parseRange } from '../audio/range.ts';
import { PRIVATE } from '../http/headers.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { errorBody, failure } from '../http/structured-error.ts';

const EXTENSIONS = { 'audio/mpeg': 'mp3', 'audio/wav': 'wav' } as const;

/** Audio in the store. */
export interface StoredObject<Type extends keyof typeof EXTENSIONS> {
  readonly key: string;
  /** As its file is named, and the parameter that names it. */
  readonly id: string;
  readonly parameter: string;
  readonly mimeType: Type;
  readonly sizeBytes: number;
}

type RangeHeaders = Readonly<{ range?: string | undefined; 'if-range'?: string | undefined }>;

/** The part of the audio that is asked for, as its header says; HEAD is answered as if for the whole. */
export const askedRange = (headers: RangeHeaders, { method }: OperationContext): string | undefined =>
  method === 'GET' && headers['if-range'] === undefined ? headers.range : undefined;

/**
 * Whether the request's sig opens the audio of this id; undefined where it shows none, or links are unsigned. Whoever
 * shows no valid one takes a slot of its address (R13, R48).
 */
export async function admitLink(
  signer: LinkSigner | undefined,
  sig: string | undefined,
  id: string,
  { admission }: OperationContext,
) {
  const shown = signer && sig;
  const isSigned = shown === undefined ? undefined : ((await signer?.verify(shown, id)) ?? false);
  const limited = await admission.take('request', isSigned ? sig : undefined);
  return { isSigned, limited };
}

/** Serves audio of the store, or the part of it that is asked for (R50). @throws StoreError */
export async function serveAudio<Type extends keyof typeof EXTENSIONS>(
  store: AudioStore,
  { key, id, parameter, mimeType, sizeBytes }: StoredObject<Type>,
  header: string | undefined,
) {
  const range = parseRange(header, sizeBytes);
  if (range === 'unsatisfiable') {
    const details = { field: 'range', rule: 'satisfiable', sizeBytes };
    return {
      status: 416 as const,
      headers: { 'content-range': `bytes */${sizeBytes}` },
      body: errorBody('INVALID_REQUEST', `range must begin inside the ${sizeBytes} bytes of the audio.`, details),
    };
  }
  const found = await store.open(key, range === 'whole' ? undefined : range);
  if (!found) return failure('NOT_FOUND', 'The stored audio is gone.', { field: parameter });
  const shared = {
    'cache-control': PRIVATE,
    'content-disposition': `inline; filename="speech-${id}.${EXTENSIONS[mimeType]}"`,
    'accept-ranges': 'bytes',
  } as const;
  if (range === 'whole') {
    const headers = { ...shared, 'content-length': sizeBytes };
    return { status: 200 as const, type: mimeType, headers, body: found.stream };
  }
  const headers = {
    ...shared,
    'content-length': range.end - range.start + 1,
    'content-range': `bytes ${range.start}-${range.end}/${sizeBytes}`,
  };
  return { status: 206 as const, type: mimeType, headers, body: found.stream };
}

/** The answer, or that of a store that can't be read. */
export async function unlessUnreadable<Answer>(context: OperationContext, answer: () => Promise<Answer>) {
  try {
    return await answer();
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    context.log.error({ err: error }, 'stored audio can not be read');
    return failure('CONFIG_ERROR', 'The audio store can not be reached. Try again in a moment.', {
      reason: 'audio_store_unavailable',
    });
  }
}
