/**
 * How commands are run in a checkout, or where the package is installed. Without --no, npx would fetch the name from the
 * registry, where nobody owns it.
 */
export const RUN_SPEECHGATE = 'npx --no -- speechgate';

/** How they are run from any other folder, such as by hosts of MCP servers. */
export const RUN_SPEECHGATE_ANYWHERE = 'node /path/to/speechgate/bin/speechgate.js';
