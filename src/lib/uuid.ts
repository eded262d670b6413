const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** True when the database can take the text for a UUID. An id that is none is simply unknown (R57). */
export const isUuid = (text: string): boolean => UUID.test(text);
