/** EX_CONFIG of sysexits(3): the settings can't be used (R47). */
export const EXIT_CONFIG = 78;
