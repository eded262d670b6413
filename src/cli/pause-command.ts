import { pauseFlows } from '../operators/pauses.ts';
import { changeFlows } from './flow-change.ts';

/** `speechgate pause FLOW… --reason TEXT` takes nothing new by these flows, in every process within seconds. */
await changeFlows({
  command: 'pause',
  tell: (flows) => `This pauses ${flows}: what is new gets 503 until it is resumed; what runs is finished.`,
  state: 'paused',
  change: pauseFlows,
});
