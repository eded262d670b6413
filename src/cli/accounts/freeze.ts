import { changeFreezing } from './freezing.ts';

/** `speechgate accounts freeze ACCOUNT --reason TEXT` */
await changeFreezing(true);
