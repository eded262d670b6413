/** The audio is damaged, longer than its text can be, or of a kind that is not read here. */
export class UnreadableAudioError extends Error {}
