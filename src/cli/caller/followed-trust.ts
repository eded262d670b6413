import { isDeepStrictEqual } from 'node:util';
import type { FollowedTrust, PinnedKey, SpeechgateOptions } from '../../client/index.ts';
import { changeSettings, writeSettingsFile } from './settings-folder.ts';
import { readObject } from './stored-settings.ts';

const FOLLOWED_FILE = 'followed.json';

/** What was learned from the metadata of a service, starting from these pinned keys and no others. */
interface Followed extends FollowedTrust {
  readonly pinned: readonly PinnedKey[];
}

/** The options of a client that trusts these keys and those that they led to, and keeps what it learns. */
export async function followedTrust(
  folder: string,
  baseUrl: string,
  pinned: readonly PinnedKey[],
): Promise<Pick<SpeechgateOptions, 'trust' | 'onTrust'>> {
  if (pinned.length === 0) return {};
  const followed = await readFollowed(folder, baseUrl, pinned);
  return { trust: followed ?? pinned, onTrust: (learned) => storeFollowed(folder, baseUrl, { pinned, ...learned }) };
}

async function readFollowed(
  folder: string,
  baseUrl: string,
  pinned: readonly PinnedKey[],
): Promise<Followed | undefined> {
  const { [baseUrl]: followed } = await readObject<Followed>(folder, FOLLOWED_FILE);
  return followed && isDeepStrictEqual(followed.pinned, pinned) ? followed : undefined;
}

/** What another process has learned from newer metadata stays. */
const storeFollowed = (folder: string, baseUrl: string, learned: Followed): Promise<void> =>
  changeSettings(folder, async () => {
    const known = await readFollowed(folder, baseUrl, learned.pinned);
    if (known && issuedAt(known) >= issuedAt(learned)) return;
    const all = await readObject<Followed>(folder, FOLLOWED_FILE);
    await writeSettingsFile(folder, FOLLOWED_FILE, { ...all, [baseUrl]: learned });
  });

const issuedAt = ({ metadata }: FollowedTrust): number => Date.parse(metadata.validity.issuedAt);
