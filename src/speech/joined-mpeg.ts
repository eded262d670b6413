import { concatBytes } from '../lib/bytes.ts';
import { MpegAudioReader } from './mpeg-audio.ts';
import { FRAME_HEADER_BYTES, frameSamples, readSideInformation, soundOf, wholeFrames } from './mpeg-frame.ts';
import { audioError, type Speech, SpeechError } from './provider.ts';
import { hasWord, splitForListener, splitText } from './split-text.ts';
import { describe } from './whole-audio.ts';

/** Silence that an encoder puts in front of its audio, in samples of its rate: that of LAME. */
const ENCODER_DELAY = 1105;
const EMPTY = new Uint8Array();

/** Requests for one text at a time. */
export const SEGMENTS_AT_ONCE = 4;

/** What a segment adds to the whole. Its bytes are frames only. */
export interface SegmentAudio {
  readonly bytes: Uint8Array;
  readonly frames: number;
  /** Of its first frame. */
  readonly header: Uint8Array;
}

interface Frames {
  readonly count: number;
  readonly end: number;
  /** Where silent frames at the end begin that are as long as the delay in front of the next segment. */
  readonly silentFrom: number;
  readonly silentCount: number;
}

function framesOf(bytes: Uint8Array): Frames {
  const { offsets, end } = wholeFrames(bytes);
  const mostSilent = offsets.length > 0 ? Math.round(ENCODER_DELAY / frameSamples(bytes)) : 0;
  const last = offsets.slice(-mostSilent);
  const sounding = last.findLastIndex((offset) => !readSideInformation(bytes, offset).isSilent);
  const silent = last.slice(sounding + 1);
  return { count: offsets.length, end, silentFrom: silent[0] ?? end, silentCount: silent.length };
}

/** The frames of a whole MP3. @param isLast otherwise it ends earlier by the delay in front of the next segment */
export function segmentAudio(audio: Uint8Array, isLast: boolean): SegmentAudio {
  const passed: Uint8Array[] = [];
  const reader = framesReader(passed);
  const fault = reader.push(audio) ?? reader.end();
  if (fault) throw audioError(fault);
  const bytes = concatBytes(passed);
  const { count, end, silentFrom, silentCount } = framesOf(bytes);
  const header = bytes.slice(0, FRAME_HEADER_BYTES);
  // The next segment is of the same encoder: if this one begins with bytes of frames before it, so may that.
  return isLast || readSideInformation(bytes).reservoirBytes > 0
    ? { bytes: bytes.subarray(0, end), frames: count, header }
    : { bytes: bytes.subarray(0, silentFrom), frames: count - silentCount, header };
}

/** Whether players play the one behind the other. */
export const canFollow = (one: Uint8Array, other: Uint8Array): boolean => soundOf(one) === soundOf(other);

/** The frame that goes in front of the joined segments. */
export function describeSegments(
  segments: readonly { readonly frames: number; readonly sizeBytes: number; readonly header: Uint8Array }[],
): Uint8Array {
  let frames = 0;
  let bytes = 0;
  const placed = segments.map((segment) => {
    const place = { ...segment, firstFrame: frames, firstByte: bytes };
    frames += segment.frames;
    bytes += segment.sizeBytes;
    return place;
  });
  const offsetOf = (frame: number) => {
    const segment = placed.findLast(({ firstFrame }) => firstFrame <= frame) as (typeof placed)[number];
    return segment.firstByte + ((frame - segment.firstFrame) / segment.frames) * segment.sizeBytes;
  };
  return describe({ header: placed[0]?.header as Uint8Array, frames, bytes, isVariable: true, offsetOf });
}

const framesReader = (passed: Uint8Array[]) =>
  new MpegAudioReader({ pass: (bytes) => void passed.push(bytes), bodyBytes: undefined, framesOnly: true });

interface Segmenting {
  /** Of one request, in characters. */
  readonly limit: number;
  /** Speaks the first sentence alone, then one part at a time, so that none delays the one before it. */
  readonly isForListener: boolean;
  speak(text: string, signal: AbortSignal, isFirst: boolean): Promise<Speech>;
}

/** Speaks a text in several requests, as one MP3. @throws SpeechError if its first segment fails */
export async function speakInSegments(
  text: string,
  { limit, isForListener, speak }: Segmenting,
  signal: AbortSignal,
): Promise<Speech> {
  const split = isForListener ? splitForListener(text, limit) : splitText(text, limit);
  if (split.outcome === 'unsplittable') {
    const message = `The speech provider accepts at most ${limit} characters, and the text has no space at which to split it.`;
    throw new SpeechError('TTS_UPSTREAM_ERROR', message, false, undefined, 'utterance').because('unsplittable');
  }
  const worded = split.parts.filter(hasWord);
  const [beginning = '', ...rest] = (worded.length > 0 ? worded : split.parts).map((part) => part.trim());
  const abandoned = new AbortController();
  const either = AbortSignal.any([signal, abandoned.signal]);
  const first = await speak(beginning, either, true);
  if (rest.length === 0) return first;
  // Only MP3 can be joined.
  if (first.mimeType !== 'audio/mpeg' && text.length <= limit) {
    abandoned.abort();
    await drain(first);
    return speak(text, signal, true);
  }
  const passed: Uint8Array[] = [];
  const reader = framesReader(passed);
  const segments = inOrder(first, rest, isForListener ? 1 : SEGMENTS_AT_ONCE, (part) => speak(part, either, false));
  return {
    ...first,
    audio: joined(segments, reader, passed, () => abandoned.abort()),
    description: () => reader.description,
  };
}

/** Asks for the segments after the one that is read, whose audio waits in its connection. */
async function* inOrder(
  first: Speech,
  rest: readonly string[],
  atOnce: number,
  speak: (text: string) => Promise<Speech>,
): AsyncGenerator<Speech> {
  const ahead = [Promise.resolve(first)];
  try {
    for (let next = 0; ahead.length > 0 || next < rest.length; ) {
      while (ahead.length < atOnce && next < rest.length) {
        const speech = speak(rest[next++] as string);
        // It is awaited in its turn.
        speech.catch(() => {});
        ahead.push(speech);
      }
      yield await (ahead.shift() as Promise<Speech>);
    }
  } finally {
    for (const speech of ahead) speech.then(drain, () => {});
  }
}

/** Ends what was abandoned, so that its upstream counts it. */
async function drain({ audio }: Speech): Promise<void> {
  try {
    for await (const _ of audio);
  } catch {}
}

async function* joined(
  segments: AsyncGenerator<Speech>,
  reader: MpegAudioReader,
  passed: Uint8Array[],
  onEnd: () => void,
): AsyncGenerator<Uint8Array, void> {
  /** Ends with what the next segment may replace. */
  let rest: Uint8Array = EMPTY;
  try {
    for await (const { mimeType, audio } of segments) {
      if (mimeType !== 'audio/mpeg') throw audioError('several files');
      let before: Uint8Array | undefined = rest;
      rest = EMPTY;
      for await (const chunk of audio) {
        const fault = reader.push(chunk);
        if (fault) throw audioError(fault);
        rest = concatBytes([rest, ...passed.splice(0)]);
        const { end, silentFrom } = framesOf(rest);
        if (end === 0) continue;
        if (before?.length && readSideInformation(rest).reservoirBytes > 0) yield before;
        before = undefined;
        if (silentFrom > 0) yield rest.subarray(0, silentFrom);
        rest = rest.subarray(silentFrom);
      }
    }
    const fault = reader.end();
    if (fault) throw audioError(fault);
    yield rest;
  } finally {
    onEnd();
  }
}
