interface Member<T> {
  readonly value: T;
  index: number;
}

/**
 * What runs or is held at the moment, where thousands come and go each second and drag much memory with them. A Set would
 * keep what has left it for longer: V8 lets the tables that a Set has outgrown refer to the next ones, and what one of them
 * holds lives until the next full collection.
 */
export class Roster<T> implements Iterable<T> {
  readonly #members: Member<T>[] = [];

  get size(): number {
    return this.#members.length;
  }

  /** Returns the function that takes it out again; only its first call does something. */
  add(value: T): () => void {
    const member: Member<T> = { value, index: this.#members.length };
    this.#members.push(member);
    return () => this.#remove(member);
  }

  *[Symbol.iterator](): Iterator<T> {
    for (const { value } of [...this.#members]) yield value;
  }

  /** The last one takes its place. */
  #remove(member: Member<T>): void {
    if (member.index < 0) return;
    const last = this.#members.pop() as Member<T>;
    if (last !== member) {
      this.#members[member.index] = last;
      last.index = member.index;
    }
    member.index = -1;
  }
}
