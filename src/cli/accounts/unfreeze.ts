import { changeFreezing } from './freezing.ts';

/** `speechgate accounts unfreeze ACCOUNT --reason TEXT` */
await changeFreezing(false);
