import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, join, resolve } from 'node:path';
import { childEnv } from '../../lib/child-env.ts';
import { UsageError } from '../usage-error.ts';

/** Programs that play MP3 and WAV, end by themselves, and print nothing. */
const PLAYERS: readonly (readonly [program: string, ...args: string[]])[] = [
  ['ffplay', '-nodisp', '-autoexit', '-loglevel', 'error'],
  ['mpv', '--no-video', '--really-quiet'],
  ['mpg123', '-q'],
  ['afplay'],
  ['play', '-q'],
];

/** The command that plays a file. */
export type Player = readonly [program: string, ...args: string[]];

/**
 * The first player of this system.
 * @throws UsageError which says what to install
 */
export async function findPlayer(env: NodeJS.ProcessEnv): Promise<Player> {
  for (const [name, ...args] of PLAYERS) {
    const program = await findProgram(name, env);
    if (program) return [program, ...args];
  }
  const install = process.platform === 'darwin' ? 'brew install ffmpeg' : 'apt install mpg123';
  throw new UsageError(`--play finds no player. Install ffmpeg, mpv or mpg123 (${install}), or leave --play out.`);
}

/** Plays a file to its end. Returns whether the player could. */
export async function play([program, ...args]: Player, path: string): Promise<boolean> {
  // A path that begins with a dash would be an option of the player.
  const player = spawn(program, [...args, resolve(path)], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: childEnv(),
  });
  const [code] = await once(player, 'exit');
  return code === 0;
}

async function findProgram(name: string, env: NodeJS.ProcessEnv): Promise<string | undefined> {
  const file = process.platform === 'win32' ? `${name}.exe` : name;
  for (const folder of (env.PATH ?? '').split(delimiter).filter(Boolean)) {
    const path = join(folder, file);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return undefined;
}
