import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { missingProgram } from './missing-program.ts';

const run = promisify(execFile);

/** Why audio can't be probed here; false where it can. */
export const withoutProbe: string | false = missingProgram('ffmpeg') ?? missingProgram('ffprobe') ?? false;

/** What ffprobe tells of a file, and what ffmpeg plays of it, without a complaint of either. */
export async function probe(audio: Uint8Array, suffix: string) {
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
    /** 24,000 a second, from -1 to 1. */
    const samples = new Float32Array(Uint8Array.from(decoded.stdout).buffer);
    const { codec_name: codec, channels } = stream as { readonly codec_name: string; readonly channels: number };
    return { codec, channels, rate: Number(stream.sample_rate), seconds: samples.length / 24_000, samples };
  } finally {
    await rm(directory, { recursive: true });
  }
}
