// Portkey reads each answer as JSON for its log, and prints an error with its stack when that is audio, also in production.
// No gateway is to be measured by what it prints.
console.error = () => {};
