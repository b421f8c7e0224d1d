// Runs one of the scripts beside this one in several ways, so that its packages are loaded once:
// `node each.mjs SCRIPT URL MODEL WAY...`. Each way prints its own line.
const [program, , script, url, model, ...ways] = process.argv;
for (const way of ways) {
  process.argv = [program, script, url, model, way];
  await import(`./${script}?${way}`);
}
