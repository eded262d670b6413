import { accessSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import type { Test } from 'tap';

/** Where screenshots go, for a person to look at; none are taken without it. */
const SCREENSHOTS = process.env.SCREENSHOTS;

const CANDIDATES = [
  process.env.CHROMIUM_PATH,
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
];

const executablePath = CANDIDATES.find((path) => {
  try {
    accessSync(path ?? '');
    return true;
  } catch {
    return false;
  }
});

/** Why browser tests are skipped; false where Chromium is installed. */
export const withoutChromium: string | false = executablePath
  ? false
  : 'Chromium is not installed (apt-get install chromium, or set CHROMIUM_PATH)';

/** A headless Chromium that makes no connections of its own. */
export async function openBrowser(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: executablePath ?? '',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  t.teardown(() => browser.close());
  return browser;
}

/** Keeps a picture of the whole page, when a person wants to look at it. */
export async function shot(page: Page, name: string): Promise<void> {
  if (!SCREENSHOTS) return;
  await mkdir(SCREENSHOTS, { recursive: true });
  await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`), fullPage: true });
}
