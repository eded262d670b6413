/** Returns what the setup of an open resource returns. Closes the resource if the setup fails. */
export async function closeOnFailure<T>(resource: { close(): Promise<void> }, setup: () => Promise<T>): Promise<T> {
  try {
    return await setup();
  } catch (error) {
    await resource.close();
    throw error;
  }
}
