import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { missingProgram } from './missing-program.ts';

const run = promisify(execFile);

/** Why audio can't be probed here; false where it can. */
export const withoutProbe: string | false = missingProgram('ffmpeg') ?? missingProgram('ffprobe') ?? false;

export interface Probed {
  readonly codec: string;
  readonly channels: number;
  readonly rate: number;
  /** Seconds, as they are played. */
  readonly seconds: number;
  /** As ffmpeg decodes it: 24,000 samples a second, from -1 to 1. */
  readonly samples: Float32Array;
}

/** What ffprobe tells of a file, and what ffmpeg plays of it, without a complaint of either. */
export async function probe(audio: Uint8Array, suffix: string): Promise<Probed> {
  const directory = await mkdtemp(join(tmpdir(), 'speechgate-probe-'));
  try {
    const path = join(directory, `audio.${suffix}`);
    await writeFile(path, audio);
    const shown = await run('ffprobe', ['-v', 'error', '-show_streams', '-of', 'json', path]);
    const decoded = await run('ffmpeg', ['-v', 'error', '-i', path, '-f', 'f32le', '-ac', '1', '-ar', '24000', '-'], {
      encoding: 'buffer',
      maxBuffer: 2 ** 28,
    });
    const complaints = shown.stderr + decoded.stderr.toString();
    if (complaints !== '') throw new Error(complaints);
    const [stream] = JSON.parse(shown.stdout).streams;
    const samples = new Float32Array(Uint8Array.from(decoded.stdout).buffer);
    return {
      codec: stream.codec_name,
      channels: stream.channels,
      rate: Number(stream.sample_rate),
      seconds: samples.length / 24_000,
      samples,
    };
  } finally {
    await rm(directory, { recursive: true });
  }
}
