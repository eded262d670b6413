const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** An id that is no UUID is unknown, and must never become a database error (R57). */
export const isUuid = (text: string): boolean => UUID.test(text);
