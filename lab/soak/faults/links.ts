import { setTimeout as sleep } from 'node:timers/promises';
import { BREAKS, type Break } from '../links/breaks.ts';
import type { OutsideName } from '../world/world.ts';
import type { Fault } from './fault.ts';

const OUTSIDE: readonly OutsideName[] = ['upstream', 'facilitator', 'node', 'checkout', 'store'];
const LONGEST_MS = 6_000;
/** Longer than the service's timeout for a settlement, 30 s. */
const HANGS_LONG_MS = 33_000;

/** A share of the calls to one external service fails in the same way for a while. */
const faultOf = (link: OutsideName, kind: Break): Fault => ({
  ...{ name: `${link}: ${kind.name}`, target: `link to ${link}`, weight: 1 },
  strike: async ({ links }, random) => {
    const share = random.pick([0.1, 0.5, 1]);
    const isLong = link === 'facilitator' && /hang/.test(kind.name) && random.chance(0.2);
    const lastsMs = isLong ? HANGS_LONG_MS : random.between(200, LONGEST_MS);
    const over = sleep(lastsMs);
    const breaker = kind.begin(random, over);
    links[link].breaker = (exchange) => (random.chance(share) ? breaker(exchange) : exchange.relay());
    await over;
    links[link].breaker = undefined;
  },
});

export const LINKS: readonly Fault[] = OUTSIDE.flatMap((link) => BREAKS.map((kind) => faultOf(link, kind)));
