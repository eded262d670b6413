/** DATABASE_URL, or the end of the process with the fix. */
export function databaseUrl(): string {
  const url = process.env.DATABASE_URL?.trim();
  if (!url) {
    console.error('DATABASE_URL is not set. Set it to postgres://user:password@host:5432/database.');
    process.exit(78);
  }
  return url;
}
