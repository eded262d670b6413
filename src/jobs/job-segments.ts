import { Readable } from 'node:stream';
import type { Selectable } from 'kysely';
import pLimit from 'p-limit';
import type { JobSegment } from '../../db/tables.ts';
import type { Database } from '../db/database.ts';
import { now, unnest } from '../db/expressions.ts';
import { testPoint } from '../lib/test-point.ts';
import { captionsOf, type PlacedWord, placeWords } from '../speech/captions.ts';
import {
  canFollow,
  describeSegments,
  SEGMENTS_AT_ONCE,
  type SegmentAudio,
  segmentAudio,
} from '../speech/joined-mpeg.ts';
import { frameSeconds } from '../speech/mpeg-frame.ts';
import type { CollectedSpeech } from '../speech/open-provider.ts';
import { type SpeakingUpstream, SpeechError, tooLarge } from '../speech/provider.ts';
import { hasWord } from '../speech/split-text.ts';
import { type AudioStore, type ByteRange, checkRange, type StoredAudio } from '../speech/store/audio-store.ts';
import type { Claim } from './claim-job.ts';

type Row = Selectable<JobSegment>;

/** The largest `job.size_bytes`. */
const MAX_JOINED_BYTES = 2 ** 31 - 1;

export const captionsKey = (jobId: string): string => `jobs/${jobId}/captions`;

const keyOf = ({ job_id, fence, number }: Row): string => `jobs/${job_id}/${fence}/${number}`;

export const findSegments = (db: Database, jobId: string): Promise<Row[]> =>
  db.selectFrom('job_segment').selectAll().where('job_id', '=', jobId).orderBy('number').execute();

export async function insertSegments(trx: Database, jobId: string, parts: readonly string[]): Promise<void> {
  const rows = unnest('part', {
    number: ['integer', parts.map((_, number) => number)],
    characters: ['integer', parts.map(({ length }) => length)],
  });
  await trx
    .insertInto('job_segment')
    .columns(['job_id', 'number', 'characters'])
    .expression(
      trx
        .selectFrom(rows)
        .select(({ val, cast }) => [cast<string>(val(jobId), 'uuid').as('id'), 'number', 'characters']),
    )
    .execute();
}

export async function deleteSegments(db: Database, store: AudioStore, jobId: string): Promise<void> {
  const rows = await findSegments(db, jobId);
  for (const row of rows) if (row.fence !== null) await store.delete(keyOf(row));
  if (rows.length > 0) await store.delete(captionsKey(jobId));
}

interface Speaking {
  readonly db: Database;
  readonly store: AudioStore;
  readonly signal: AbortSignal;
  speak(text: string): Promise<CollectedSpeech>;
  /** A segment was stored: failures before it no longer count. */
  onProgress(): void;
}

export type SpokenSegments =
  | { readonly outcome: 'joined'; readonly sizeBytes: number; readonly upstream: SpeakingUpstream | undefined }
  | { readonly outcome: 'taken over' };

/** Speaks and stores the segments of a job that are not stored yet. @throws the first failure, after the others ended */
export async function speakSegments(claim: Claim, rows: readonly Row[], speaking: Speaking): Promise<SpokenSegments> {
  const { db, store, signal } = speaking;
  // What a dead owner may have stored without recording it.
  for (const row of rows) if (row.fence !== null && row.spoken_at === null) await store.delete(keyOf(row));
  const missing = segmentTexts(claim, rows).filter(({ row }) => row.spoken_at === null);
  let header = rows.find(({ frame_header }) => frame_header)?.frame_header;
  let failure: { readonly error: unknown } | undefined;
  let isTakenOver = false;

  async function run({ row, text }: (typeof missing)[number]): Promise<void> {
    if (failure || isTakenOver || signal.aborted) return;
    try {
      const spoken = hasWord(text) ? await speaking.speak(text) : undefined;
      const segment = spoken && segmentAudio(spoken.audio, row === rows.at(-1));
      header ??= segment && Buffer.from(segment.header);
      if (header && segment && !canFollow(header, segment.header)) throw cannotJoin();
      isTakenOver ||= !(await takeSegment(db, claim, row.number));
      if (isTakenOver) return;
      const key = keyOf({ ...row, fence: claim.fence });
      if (segment) await store.put(key, Buffer.from(segment.bytes), 'audio/mpeg');
      testPoint('segment stored');
      const words = placeWords(text, spoken?.words ?? []);
      if (await recordSegment(db, claim, row.number, { segment, upstream: spoken?.upstream, words })) {
        testPoint('segment recorded');
        speaking.onProgress();
      } else {
        isTakenOver = true;
        await store.delete(key);
      }
    } catch (error) {
      failure ??= { error };
    }
  }

  const limit = pLimit(SEGMENTS_AT_ONCE);
  await Promise.all(missing.map((segment) => limit(run, segment)));
  if (isTakenOver) return { outcome: 'taken over' };
  if (failure) throw failure.error;
  signal.throwIfAborted();
  const spoken = await findSegments(db, claim.jobId);
  if (claim.storeAudio) await store.put(captionsKey(claim.jobId), captionsFor(claim, spoken), 'text/vtt');
  return joinedOf(spoken);
}

function segmentTexts({ utterance: { text } }: Claim, rows: readonly Row[]) {
  let end = 0;
  return rows.map((row) => {
    const start = end;
    end += row.characters;
    return { row, text: text.slice(start, end).trim() };
  });
}

function captionsFor(claim: Claim, rows: readonly Row[]): Buffer {
  const parts = segmentTexts(claim, rows).map(({ row: { frame_header, frames, words }, text }) => {
    return {
      text,
      seconds: frame_header ? frames * frameSeconds(frame_header) : 0,
      words: words as unknown as PlacedWord[],
    };
  });
  return Buffer.from(captionsOf(parts));
}

/** The next upstream may speak as the first one did. */
const cannotJoin = () =>
  new SpeechError('TTS_UPSTREAM_ERROR', 'The speech provider returned audio segments that cannot be joined.', true);

/** Segments without a word are not sent to a provider. */
const wordless = () =>
  new SpeechError('TTS_UPSTREAM_ERROR', 'The text has no letter or digit to speak.', false).because('no_audio');

function joinedOf(rows: readonly Row[]): SpokenSegments {
  const audible = rows.filter(isAudible);
  if (audible.length === 0) throw wordless();
  const sizeBytes = joinedBytes(audible);
  if (sizeBytes > MAX_JOINED_BYTES) throw tooLarge();
  const characters = audible.reduce((sum, row) => sum + BigInt(row.characters), 0n);
  const cost = audible.reduce((sum, row) => sum + BigInt(row.characters) * (row.cost_pico_usd ?? 0n), 0n);
  const name = audible.find(({ upstream }) => upstream !== null)?.upstream;
  const isCostKnown = audible.every(({ cost_pico_usd }) => cost_pico_usd !== null);
  return {
    outcome: 'joined',
    sizeBytes,
    upstream: name ? { name, costPicoUsd: isCostKnown ? cost / characters : null } : undefined,
  };
}

type AudibleRow = Row & { readonly frame_header: Buffer };
const isAudible = (row: Row): row is AudibleRow => row.frame_header !== null;

const headOf = (rows: readonly AudibleRow[]): Uint8Array =>
  describeSegments(
    rows.map(({ frames, size_bytes: sizeBytes, frame_header: header }) => ({ frames, sizeBytes, header })),
  );

const joinedBytes = (rows: readonly AudibleRow[]): number =>
  rows.reduce((sum, { size_bytes }) => sum + size_bytes, headOf(rows).length);

const owned = (db: Database, { jobId, fence }: Claim) =>
  db
    .selectFrom('job')
    .select('id')
    .where('id', '=', jobId)
    .where('fence', '=', fence)
    .where('state', '=', 'processing')
    .forUpdate();

/** Returns false if another process has taken the job over. */
async function takeSegment(db: Database, claim: Claim, number: number): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('job_segment')
    .set({ fence: claim.fence })
    .where('job_id', 'in', owned(db, claim))
    .where('number', '=', number)
    .executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}

interface RecordedSegment {
  readonly segment: SegmentAudio | undefined;
  readonly upstream: SpeakingUpstream | undefined;
  readonly words: readonly PlacedWord[];
}

/** Begins to count attempts anew. Returns false if another process has taken the job over. */
async function recordSegment(
  db: Database,
  claim: Claim,
  number: number,
  { segment, upstream, words }: RecordedSegment,
): Promise<boolean> {
  const { numUpdatedRows } = await db
    .with('progressed', (qb) =>
      qb.updateTable('job').set({ attempts: 1, updated_at: now }).where('id', 'in', owned(db, claim)).returning('id'),
    )
    .updateTable('job_segment')
    .from('progressed')
    .set({
      spoken_at: now,
      size_bytes: segment?.bytes.length ?? 0,
      frames: segment?.frames ?? 0,
      frame_header: segment ? Buffer.from(segment.header) : null,
      upstream: upstream?.name ?? null,
      cost_pico_usd: upstream?.costPicoUsd ?? null,
      words: JSON.stringify(words),
    })
    .whereRef('job_id', '=', 'progressed.id')
    .where('number', '=', number)
    .executeTakeFirstOrThrow();
  return numUpdatedRows > 0n;
}

/** Opens the joined audio of a job's segments, which are read one after the other. Undefined if they are gone. */
export async function openSegments(
  store: AudioStore,
  rows: readonly Row[],
  range?: ByteRange,
): Promise<StoredAudio | undefined> {
  const audible = rows.filter(isAudible);
  const size = joinedBytes(audible);
  const { start, end } = range ?? { start: 0, end: size - 1 };
  checkRange({ start, end }, size);
  const head = headOf(audible);
  let position = head.length;
  const pieces = audible.flatMap((row) => {
    const first = Math.max(start - position, 0);
    const last = Math.min(end - position, row.size_bytes - 1);
    position += row.size_bytes;
    return first <= last ? [{ row, range: { start: first, end: last } }] : [];
  });
  const open = ({ row, range }: (typeof pieces)[number]) => store.open(keyOf(row), range);
  const [first, ...others] = pieces;
  const opened = first && (await open(first));
  if (first && !opened) return undefined;
  async function* read() {
    if (start < head.length) yield head.subarray(start, end + 1);
    if (opened) yield* opened.stream;
    for (const piece of others) {
      const next = await open(piece);
      if (!next)
        throw new Error(
          'a segment of this audio is missing in the audio store, so the caller got only the part before it; the job stays charged. Restore the store from a backup, or give the credit back with speechgate admin accounts adjust',
        );
      yield* next.stream;
    }
  }
  const stream = Readable.from(read(), { objectMode: false });
  // The reader may leave before it has read anything.
  return { size, stream: stream.on('close', () => opened?.stream.destroy()) };
}
