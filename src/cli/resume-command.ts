import { resumeFlows } from '../operators/pauses.ts';
import { changeFlows } from './flow-change.ts';

/** `speechgate resume FLOW… --reason TEXT` opens again what was paused, in every process within seconds. */
await changeFlows({
  command: 'resume',
  tell: (flows) => `This opens ${flows} again.`,
  state: 'open',
  change: resumeFlows,
});
