/** Without --no, npx would fetch the name from the registry, where nobody owns it. */
export const RUN_SPEECHGATE = 'npx --no -- speechgate';

export const RUN_SPEECHGATE_ANYWHERE = 'node /path/to/speechgate/dist/speechgate.js';
