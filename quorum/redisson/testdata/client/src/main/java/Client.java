import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Takes Redisson's locks on the servers whose addresses are its arguments, one
 * Redisson instance for each, as it is told on standard input:
 *
 * <pre>request worker verb kind name [argument...]</pre>
 *
 * A worker is a thread, and so an owner of locks. The answer, on standard output,
 * has the wall clock at its beginning and end, in microseconds:
 *
 * <pre>request began ended value</pre>
 *
 * Kinds are plain, fair, spin, fenced, read and write, of the first server, and
 * multi/n, read/n and write/n, a MultiLock of such locks on the first n, and red/n,
 * a RedissonRedLock of them. The properties watchdog and timeout are Redisson's lockWatchdogTimeout and timeout,
 * in milliseconds. It ends with standard input.
 */
public final class Client {
    private static final List<RedissonClient> clients = new ArrayList<>();

    public static void main(String[] addresses) throws Exception {
        for (String address : addresses) {
            Config config = new Config();
            config.setThreads(2).setNettyThreads(2).setLockWatchdogTimeout(Long.getLong("watchdog", 30_000));
            config.useSingleServer()
                    .setAddress("redis://" + address)
                    .setTimeout(Integer.getInteger("timeout", 3000))
                    .setConnectionMinimumIdleSize(1)
                    .setConnectionPoolSize(8);
            clients.add(Redisson.create(config));
        }
        say("ready");
        Map<String, ExecutorService> workers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            workers.computeIfAbsent(words[1], w -> Executors.newSingleThreadExecutor(r -> new Thread(r, w))).execute(() -> answer(words));
        }
        System.exit(0);
    }

    private static void answer(String[] words) {
        String[] arguments = Arrays.copyOfRange(words, 5, words.length);
        long began = now();
        String value;
        try {
            value = String.valueOf(perform(words[2], lock(words[3], words[4]), arguments));
        } catch (Exception e) {
            value = "error " + e.toString().replaceAll("\\s+", " ");
        }
        say(words[0] + " " + began + " " + now() + " " + value);
    }

    private static Object perform(String verb, RLock lock, String[] arguments) throws Exception {
        switch (verb) {
            case "lock":
                lock.lock();
                return true;
            case "try": // wait, lease: ms; a lease of -1 is the watchdog's
                return lock.tryLock(number(arguments[0]), number(arguments[1]), TimeUnit.MILLISECONDS);
            case "unlock":
                lock.unlock();
                return true;
            case "force":
                return lock.forceUnlock();
            case "held":
                return lock.isHeldByCurrentThread();
            case "token":
                return ((RFencedLock) lock).lockAndGetToken();
            case "asleep": // worker
                return asleep(arguments[0]);
            case "count": // file, rounds
                return count(lock, Path.of(arguments[0]), number(arguments[1]));
            case "turns": // hold, until: ms, by the wall clock
                return turns(lock, number(arguments[0]), number(arguments[1]));
            case "look": // file, rounds
                return look(lock, Path.of(arguments[0]), number(arguments[1]));
            default:
                throw new IllegalArgumentException("no such verb: " + verb);
        }
    }

    /** Waits until a worker waits for a notice: Redisson does so by a semaphore. */
    private static boolean asleep(String worker) throws Exception {
        for (;; Thread.sleep(1)) {
            for (Map.Entry<Thread, StackTraceElement[]> e : Thread.getAllStackTraces().entrySet()) {
                Thread.State state = e.getKey().getState();
                if (e.getKey().getName().equals(worker)
                        && (state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING)
                        && Arrays.stream(e.getValue()).anyMatch(f -> f.getClassName().equals("java.util.concurrent.Semaphore"))) {
                    return true;
                }
            }
        }
    }

    /** Adds to the number in a file under the lock, as often as is asked for. */
    private static String count(RLock lock, Path file, long rounds) throws Exception {
        for (long i = 0; i < rounds; i++) {
            lock.lock();
            try {
                String before = Files.readString(file);
                Thread.sleep(1);
                if (!Files.readString(file).equals(before)) {
                    return "not alone in round " + i;
                }
                Files.writeString(file, Long.toString(number(before) + 1));
            } finally {
                lock.unlock();
            }
        }
        return "alone";
    }

    /** Takes turns until a time, and says how many it had and what it waited for the longest, ms. */
    private static String turns(RLock lock, long hold, long until) throws Exception {
        long had = 0, longest = 0;
        for (long asked = now(); asked < until * 1000; asked = now()) {
            boolean got = lock.tryLock(until - asked / 1000, 30_000, TimeUnit.MILLISECONDS);
            longest = Math.max(longest, (now() - asked) / 1000);
            if (got) {
                had++;
                Thread.sleep(hold);
                lock.unlock();
            }
        }
        return had + " " + longest;
    }

    /** Sees under the lock that nobody changes a file, as often as is asked for. */
    private static String look(RLock lock, Path file, long rounds) throws Exception {
        for (long i = 0; i < rounds; i++) {
            lock.lock();
            try {
                String before = Files.readString(file);
                Thread.sleep(1);
                if (before.isEmpty() || !Files.readString(file).equals(before)) {
                    return "not safe from writers in round " + i;
                }
            } finally {
                lock.unlock();
            }
        }
        return "alone";
    }

    private static RLock lock(String kind, String name) {
        String[] parts = kind.split("/");
        if (parts.length == 1) {
            return lock(clients.get(0), kind, name);
        }
        switch (parts[0]) {
            case "multi":
                return clients.get(0).getMultiLock(first(number(parts[1]), "plain", name));
            case "red":
                return redLock(clients.get(0), first(number(parts[1]), "plain", name));
            default:
                return clients.get(0).getMultiLock(first(number(parts[1]), parts[0], name));
        }
    }

    private static RLock lock(RedissonClient client, String kind, String name) {
        switch (kind) {
            case "plain":
                return client.getLock(name);
            case "fair":
                return client.getFairLock(name);
            case "spin":
                return client.getSpinLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            default:
                throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    @SuppressWarnings("deprecation") // it is what is to be tested
    private static RLock redLock(RedissonClient client, RLock[] locks) {
        return client.getRedLock(locks);
    }

    private static RLock[] first(long n, String kind, String name) {
        return clients.stream().limit(n).map(c -> lock(c, kind, name)).toArray(RLock[]::new);
    }

    private static long number(String text) {
        return Long.parseLong(text.trim());
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
