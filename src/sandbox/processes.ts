import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

export async function commandLineOf(pid: number, platform = process.platform): Promise<string> {
  if (platform === 'linux') {
    // A small container has no ps.
    const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    return words.replaceAll('\0', ' ').trim();
  }
  const ask: [string, string[]] =
    platform === 'win32'
      ? [
          'powershell.exe',
          ['-NoProfile', '-Command', `(Get-CimInstance Win32_Process -Filter 'ProcessId=${pid}').CommandLine`],
        ]
      : ['ps', ['-p', String(pid), '-ww', '-o', 'command=']];
  // ps fails if there is no such process.
  const { stdout } = await promisify(execFile)(...ask, { windowsHide: true }).catch(() => ({ stdout: '' }));
  return stdout.replaceAll('"', '').trim();
}
