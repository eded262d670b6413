import { Chain } from './chain.ts';
import { listenRaw } from './raw-http-server.ts';
import { type Manner, Upstream } from './upstream.ts';

/**
 * All parts behind the targets in one process: the speech upstream, the facilitator and the chain's node. It sends its
 * ports to its parent, which can change the upstream's behavior.
 */
export interface StubPorts {
  readonly upstream: number;
  readonly facilitator: number;
  readonly node: number;
}

const upstream = new Upstream();
const chain = new Chain();
const ports: StubPorts = {
  upstream: await listenRaw(upstream.handler),
  facilitator: await listenRaw(chain.facilitator),
  node: await listenRaw(chain.node),
};
process.on('message', (manner: Manner) => {
  upstream.speak(manner);
  process.send?.('ready');
});
process.once('disconnect', () => process.exit());
process.send?.(ports);
