/** The longest text of a request, in characters (R1); the selected model's own cap applies too. */
export const MAX_TEXT_LENGTH = 4096;
/** The longest text in a query, in characters (R4). */
export const MAX_QUERY_TEXT_LENGTH = 1500;
/** The longest id of a model or voice. */
export const MAX_NAME_LENGTH = 100;
