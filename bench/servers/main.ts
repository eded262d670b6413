import { Chain } from './chain.ts';
import { listenRaw } from './raw-http-server.ts';
import { type Manner, Upstream } from './upstream.ts';

/**
 * What stands behind every target, in one process: the speech upstream, the facilitator and the chain's node. Tells its
 * ports to the process that started it, which may tell the upstream to speak in another manner.
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
