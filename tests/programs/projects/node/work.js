// Threads, child processes, files and a server; prints what came out.
'use strict';

const assert = require('node:assert');
const { execFile, fork } = require('node:child_process');
const crypto = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const { promisify } = require('node:util');
const { Worker, isMainThread, workerData } = require('node:worker_threads');
const zlib = require('node:zlib');

async function threads() {
  const counter = new Int32Array(new SharedArrayBuffer(4));
  const workers = Array.from({ length: 4 }, () => new Worker(__filename, { workerData: counter }));
  await Promise.all(workers.map((worker) => once(worker, 'exit')));
  return counter[0];
}

async function children() {
  const { stdout } = await promisify(execFile)(process.execPath, ['-p', '6 * 7']);
  const child = fork(__filename, ['child']);
  child.send({ question: 20 });
  const [message] = await once(child, 'message');
  child.disconnect();
  await once(child, 'exit');
  return [Number(stdout), message.answer];
}

async function files() {
  const seen = new Promise((resolve) => {
    const watcher = fs.watch('.', (event, name) => {
      if (name === 'made.gz') resolve(watcher.close());
    });
  });
  const text = 'line\n'.repeat(100000);
  await fs.promises.writeFile('made.gz', await promisify(zlib.gzip)(text));
  await seen;
  const read = await promisify(zlib.gunzip)(await fs.promises.readFile('made.gz'));
  return read.toString() === text;
}

async function server() {
  const listening = http.createServer((request, response) => request.pipe(response));
  listening.listen(0, 'localhost');
  await once(listening, 'listening');
  const url = `http://localhost:${listening.address().port}/`;
  const calls = Array.from({ length: 20 }, async (_, number) => {
    const response = await fetch(url, { method: 'POST', body: String(number) });
    return Number(await response.text());
  });
  const answers = await Promise.all(calls);
  listening.close();
  return answers.reduce((sum, answer) => sum + answer);
}

async function main() {
  // On libuv's own threads.
  const keys = Array.from({ length: 4 }, () =>
    promisify(crypto.pbkdf2)('secret', 'salt', 1000, 32, 'sha256'));
  const [first, ...others] = (await Promise.all(keys)).map(String);
  assert(others.every((key) => key === first));
  console.log(JSON.stringify([await threads(), await children(), await files(), await server()]));
}

if (!isMainThread) {
  for (let i = 0; i < 1000; i++) Atomics.add(workerData, 0, 1);
} else if (process.argv[2] === 'child') {
  process.once('message', ({ question }) => process.send({ answer: question + 1 }));
} else {
  main();
}
