// Verifies deliveries with the libraries that receivers use, and with node's own
// cryptography where those know no such scheme. Reads the file that the test wrote.
'use strict'
const crypto = require('node:crypto')
const fs = require('node:fs')
const libraries = { standardwebhooks: require('standardwebhooks').Webhook, svix: require('svix').Webhook }

const { secrets, publicKey, deliveries } = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'))
const counts = { standardwebhooks: 0, svix: 0, v1a: 0, hex: 0 }

function accepts(webhook, delivery) {
  try {
    webhook.verify(delivery.text, delivery.headers)
    return true
  } catch (error) {
    if (error.name === 'WebhookVerificationError') return false
    throw error
  }
}

function check(name, receivers, delivery) {
  const verdicts = receivers.map((receiver) => accepts(receiver, delivery))
  const [all, none, one] = [delivery.all ?? [], delivery.none ?? [], delivery.one ?? []]
  const right = all.every((i) => verdicts[i]) && !none.some((i) => verdicts[i]) && (one.length === 0 || one.some((i) => verdicts[i]))
  if (!right) throw new Error(`${name}: ${delivery.headers['webhook-id']}: ${JSON.stringify({ ...delivery, verdicts })}`)
  counts[name]++
}

function checkEd25519(delivery) {
  const raw = Buffer.from(publicKey.slice('whpk_'.length), 'base64')
  const der = Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), raw]) // RFC 8410
  const key = crypto.createPublicKey({ key: der, format: 'der', type: 'spki' })
  const h = delivery.headers
  const first = h['webhook-signature'].split(' ')[0]
  const message = Buffer.concat([Buffer.from(`${h['webhook-id']}.${h['webhook-timestamp']}.`), delivery.body])
  if (!first.startsWith('v1a,') || !crypto.verify(null, message, key, Buffer.from(first.slice(4), 'base64'))) throw new Error(`v1a: ${first}`)
  counts.v1a++
}

function checkHex(delivery) {
  const key = Buffer.from(secrets[delivery.hex].slice('whsec_'.length), 'base64')
  const want = 'sha256=' + crypto.createHmac('sha256', key).update(delivery.body).digest('hex')
  if (delivery.headers['x-webhook-signature'] !== want) throw new Error(`hex: ${delivery.headers['x-webhook-signature']}`)
  counts.hex++
}

const receivers = {}
for (const [name, Webhook] of Object.entries(libraries)) receivers[name] = secrets.map((secret) => new Webhook(secret))
for (const delivery of deliveries) {
  delivery.body = Buffer.from(delivery.body, 'base64')
  delivery.text = delivery.body.toString('utf8')
  if (delivery.scheme === 'v1a') checkEd25519(delivery)
  else if (delivery.scheme === 'hex') checkHex(delivery)
  else for (const name of Object.keys(libraries)) check(name, receivers[name], delivery)
}
process.stdout.write(JSON.stringify(counts))
