import { privateKeyToAccount } from 'viem/accounts';
import { formatUsd } from '../../lib/money.ts';
import { fingerprintOf } from './fingerprint.ts';
import { flowWord } from './flow-word.ts';
import type { Settings } from './settings.ts';
import { shownAccount } from './shown-account.ts';
import { otherServicesOfWallet } from './stored-settings.ts';

/** What is set, without its secrets: as a document, and as lines for people. */
export async function describeSettings(settings: Settings): Promise<{ document: object; lines: readonly string[] }> {
  const { baseUrl, flow, account, walletKey, trust, caps, folder } = settings;
  const wallet = walletKey && privateKeyToAccount(walletKey).address;
  const walletAlsoAt = wallet ? await otherServicesOfWallet(folder, baseUrl, wallet) : [];
  const keys = await Promise.all(
    trust.map(async (key) => ({ keyId: key.keyId, fingerprint: await fingerprintOf(key) })),
  );
  const usd = (amount: bigint | undefined) => (amount === undefined ? 'no limit' : `${formatUsd(amount)} USD`);
  const { perCallMicroUsd, perDayMicroUsd, totalMicroUsd } = caps;
  const lines = [
    `service   ${baseUrl}`,
    `pays by   ${flowWord(flow)}`,
    `account   ${account === undefined ? 'none (speechgate top-up buys credit)' : shownAccount(account)}`,
    `wallet    ${wallet ?? 'none (--wallet create makes one)'}`,
    ...(walletAlsoAt.length === 0
      ? []
      : [`WARNING   ${walletAlsoAt.join(', ')} knows this wallet too. Use one for each service (--wallet FILE).`]),
    ...(keys.length === 0 ? ['trusts    no key (--trust, --fingerprint)'] : []),
    ...keys.map(({ keyId, fingerprint }) => `trusts    ${keyId}, fingerprint ${fingerprint}`),
    `caps      ${usd(perCallMicroUsd)} per call, ${usd(perDayMicroUsd)} per day, ${usd(totalMicroUsd)} in total`,
    `kept in   ${folder}`,
  ];
  const document = {
    ...{ url: baseUrl, pay: flowWord(flow), account: account === undefined ? null : shownAccount(account) },
    ...{ wallet: wallet ?? null, walletAlsoAt, trust: keys, folder },
    caps: {
      perCallMicroUsd: perCallMicroUsd ?? null,
      perDayMicroUsd: perDayMicroUsd ?? null,
      totalMicroUsd: totalMicroUsd ?? null,
    },
  };
  return { document, lines };
}
