import type { X402Config } from '../settings/x402-settings.ts';
import { RpcError, RpcRefusal } from '../x402/rpc.ts';
import { AskedNode } from './asked-node.ts';
import { isRightAsset } from './asset-checks.ts';
import { type Area, type Check, type Finding, fault, off, ok, skipped, warning } from './check.ts';
import type { Patient } from './patient.ts';
import { isPlainAddress } from './payee-checks.ts';

const NAMES = ['node', 'node-logs', 'asset', 'payee'];
/** Age of the newest block. */
const LAG_WARNING_SECONDS = 30;
const LAG_FAULT_SECONDS = 120;
/** How far the newest block may be ahead of our clock. */
const AHEAD_SECONDS = 15;
const DAY_SECONDS = 86_400;
/** Blocks by which the time between two is measured. */
const MEASURED_BLOCKS = 1_000n;

/** Each node of the chain, and what the chain says of the token and of those who are paid. */
export function nodeChecks({ config, now, isSandbox }: Pick<Patient, 'config' | 'now' | 'isSandbox'>): Area {
  const { x402 } = config;
  if (!x402) return off(NAMES, 'X402_PAY_TO is unset: x402 answers 503.');
  if (!x402.rpcUrls) return off(NAMES, 'X402_RPC_URL is unset: direct payment and deposits answer 503.');
  const nodes = x402.rpcUrls.map((url, index) => new ExaminedNode(url, index + 1, x402, now, isSandbox));
  const [first] = nodes as [ExaminedNode];
  return {
    checks: [
      ...nodes.flatMap((node) => node.checks()),
      { name: 'asset', run: first.usable((node) => isRightAsset(node, x402.asset)) },
      ...x402.payees.map(({ address }) => ({
        name: 'payee',
        about: address,
        run: first.usable((node) => isPlainAddress(node, address, x402.asset)),
      })),
    ],
    close: async () => {
      await Promise.all(nodes.map((node) => node.close()));
    },
  };
}

class ExaminedNode {
  readonly #node: AskedNode;
  readonly #about: string;
  readonly #x402: X402Config;
  readonly #now: () => number;
  /** True for a chain that has a block when there is something to put into it. */
  readonly #isIdle: boolean;
  #chainId: Promise<number> | undefined;

  constructor(url: string, position: number, x402: X402Config, now: () => number, isIdle: boolean) {
    this.#node = new AskedNode(url);
    this.#about = `${position} of ${x402.rpcUrls?.length}`;
    this.#x402 = x402;
    this.#now = now;
    this.#isIdle = isIdle;
  }

  checks(): Check[] {
    const about = this.#about;
    return [
      { name: 'node', about, run: () => this.#isCurrent() },
      { name: 'node-logs', about, run: this.usable((node) => keepsLogs(node, this.#x402)) },
    ];
  }

  /** A check that asks the node; it is skipped where that is none of our chain. */
  usable(ask: (node: AskedNode) => Promise<Finding>): () => Promise<Finding> {
    return async () => {
      const isOurs = await this.#chain().then(
        (chainId) => chainId === this.#x402.asset.chainId,
        () => false,
      );
      return isOurs ? ask(this.#node) : skipped('No node of our chain answers.');
    };
  }

  close(): Promise<void> {
    return this.#node.close();
  }

  async #isCurrent(): Promise<Finding> {
    const { network, chainId } = this.#x402.asset;
    try {
      const found = await this.#chain();
      if (found !== chainId) {
        const fix = 'Set X402_RPC_URL to a node of the network that X402_NETWORK names.';
        return fault(`It is a node of chain ${found}, and X402_NETWORK is ${network}.`, fix);
      }
      const { number, timestamp } = await this.#node.block('latest');
      if (this.#isIdle)
        return ok(`Its newest block is ${number}; it makes one when there is something to put into it.`);
      return await this.#judgeAge(number, this.#now() / 1000 - timestamp);
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      const fix = 'Correct X402_RPC_URL with its key or password, or look at the network between.';
      return fault(error.message, fix);
    }
  }

  async #judgeAge(head: bigint, age: number): Promise<Finding> {
    const seconds = Math.round(Math.abs(age));
    if (age < -AHEAD_SECONDS) {
      const fix = 'Have this machine set its clock by NTP; if it is right, use another node.';
      return fault(`Its newest block ${head} is ${seconds} s ahead of our clock.`, fix);
    }
    const old = `Its newest block ${head} is ${seconds} s old`;
    const fix = 'Use a node that follows the chain: payments count once it shows them.';
    if (age > LAG_FAULT_SECONDS) return fault(`${old}: it lags, or our clock is ahead.`, fix);
    if (age > LAG_WARNING_SECONDS) return warning(`${old}.`, fix);
    if (await this.#knowsFinalized()) return ok(`${old}.`);
    return warning(
      `${old}, and it knows no finalized block: failed payments are told an hour later.`,
      'Use a node that answers eth_getBlockByNumber with finalized.',
    );
  }

  async #knowsFinalized(): Promise<boolean> {
    try {
      await this.#node.block('finalized');
      return true;
    } catch (error) {
      if (error instanceof RpcRefusal) return false;
      throw error;
    }
  }

  #chain(): Promise<number> {
    this.#chainId ??= this.#node.chainId();
    return this.#chainId;
  }
}

/** Payments that failed are looked for again after a day (src/reconcile/failed-payments.ts). */
async function keepsLogs(node: AskedNode, { asset }: X402Config): Promise<Finding> {
  const head = await node.block('latest');
  const before = await node.block(head.number > MEASURED_BLOCKS ? head.number - MEASURED_BLOCKS : 0n);
  const blockSeconds = (head.timestamp - before.timestamp) / Math.max(1, Number(head.number - before.number));
  const blocksOfDay = BigInt(Math.ceil(DAY_SECONDS / Math.max(blockSeconds, 0.01)));
  const isYounger = blocksOfDay > head.number;
  const from = isYounger ? 0n : head.number - blocksOfDay;
  try {
    await node.block(from);
    await node.searchLogs(asset.address, from);
  } catch (error) {
    if (!(error instanceof RpcRefusal)) throw error;
    return fault(
      `It does not answer for the logs of a day ago (from block ${from}, 1000 blocks at once).`,
      'Use a node that keeps blocks and logs for two days at least, and answers eth_getLogs for 1000 blocks.',
    );
  }
  return ok(isYounger ? 'It has the logs of the whole chain.' : `It has the logs of a day ago, from block ${from} on.`);
}
