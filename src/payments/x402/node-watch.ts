import type { Logger } from 'pino';
import type { Asset } from '../../config/network.ts';
import { within } from '../../lib/within.ts';
import type { Chain } from './chain.ts';

const ASK_EVERY_MS = 60_000;
const FIRST_ANSWER_TIMEOUT_MS = 1_000;
/** Less than a scrape waits. */
const NEWEST_BLOCK_TIMEOUT_MS = 900;

/**
 * Learns in the background whether a node of X402_RPC_URL answers, so that /readyz need not wait for it, and compares
 * the token's EIP-712 domain with the configured one until they agree (R58).
 */
export class NodeWatch {
  readonly #chain: Chain;
  readonly #asset: Asset;
  readonly #log: Logger;
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;
  #newestBlockAt: Date | undefined;
  #firstAnswer: Promise<void> | undefined;
  #state: 'unknown' | 'ok' | 'unreachable' = 'unknown';
  #domain: 'unknown' | 'unreported' | 'ok' | 'different' = 'unknown';

  constructor(chain: Chain, asset: Asset, log: Logger) {
    this.#chain = chain;
    this.#asset = asset;
    this.#log = log;
  }

  get state(): string {
    return this.#state;
  }

  /** Grows while no node answers; undefined before the first answer. */
  async newestBlockAge(): Promise<{ readonly seconds: number | undefined }> {
    const keep = (at: Date) => {
      this.#newestBlockAt = at;
    };
    await within(
      NEWEST_BLOCK_TIMEOUT_MS,
      this.#chain.newestBlockAt().then(keep, () => {}),
    );
    const newest = this.#newestBlockAt;
    return { seconds: newest && (Date.now() - newest.getTime()) / 1000 };
  }

  start(): void {
    this.#timer ??= setInterval(() => void this.#ask(), ASK_EVERY_MS).unref();
    this.#firstAnswer ??= within(FIRST_ANSWER_TIMEOUT_MS, this.#ask());
  }

  /** Whether no signature is valid, because the token has another EIP-712 domain. Waits shortly for the first answer. */
  async hasOtherDomain(): Promise<boolean> {
    await this.#firstAnswer;
    return this.#domain === 'different';
  }

  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#timer);
  }

  async #ask(): Promise<void> {
    const former = this.#state;
    try {
      await this.#chain.head();
      this.#state = 'ok';
      if (former === 'unreachable') this.#log.info('a node of X402_RPC_URL can be used again. No action is needed');
    } catch (err) {
      if (this.#isStopped) return;
      this.#state = 'unreachable';
      if (former === this.#state) return;
      const effect = 'so new direct payments and deposits are refused and not charged';
      this.#log.error({ err }, `X402_RPC_URL: no node gives a usable answer, ${effect}. Fix the cause in err`);
      return;
    }
    if (this.#domain !== 'ok') await this.#compareDomain();
  }

  async #compareDomain(): Promise<void> {
    const former = this.#domain;
    const { name, version } = this.#asset;
    try {
      this.#domain = (await this.#chain.hasConfiguredDomain()) ? 'ok' : 'different';
    } catch (err) {
      if (former !== 'unknown' || this.#isStopped) return;
      this.#domain = 'unreported';
      this.#log.warn(
        { err },
        "the node did not return the token's EIP-712 domain, so X402_ASSET_NAME and X402_ASSET_VERSION are not checked. Compare them with the contract",
      );
    }
    if (this.#domain === former) return;
    if (former === 'different') {
      this.#log.info(
        "the token's EIP-712 domain matches X402_ASSET_NAME and X402_ASSET_VERSION again. No action is needed",
      );
    }
    if (this.#domain !== 'different') return;
    const fix = 'Check that X402_ASSET is the token, and set both to the results of its name() and version()';
    this.#log.error(
      `X402_ASSET_NAME, X402_ASSET_VERSION: the token's EIP-712 domain is not ${name}, version ${version}. ${fix}. Until then direct payments and deposits are refused with 503 and not charged`,
    );
  }
}
