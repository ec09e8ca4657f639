import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * One process's worth of Redisson, driven by lines. Its arguments are the
 * servers, as host:port. Words are separated by blanks, times are in ms:
 *
 *   lock ID LEASE NAME       lock without renewal
 *   keep ID LEASE NAME       lock with renewal by the watchdog
 *   cancel ID                unlock when it is locked: its waiting cannot be interrupted
 *   unlock ID
 *   loop ID LEASE TIME NAME...   for each name a thread locks and unlocks it until the time is over
 *
 * Each is answered when it is done, in any order, by "ok ID" or "error ID what
 * happened"; but cancel is not. After ok, loop has the nanoseconds that each lock
 * and each unlock took, by turns.
 */
public final class Main {
  private static final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private static final ExecutorService threads = Executors.newCachedThreadPool();
  private static final Map<String, Held> open = new ConcurrentHashMap<>();

  /** One lock and its thread: Redisson's locks belong to threads. */
  private static final class Held {
    final CountDownLatch unlock = new CountDownLatch(1);
    volatile boolean cancelled;
  }

  private static String[] servers;
  private static RedissonClient[] clients;
  /** The watchdog's time is that of a client: those for each. */
  private static final Map<Long, RedissonClient[]> keepers = new ConcurrentHashMap<>();

  public static void main(String[] args) throws Exception {
    servers = args;
    clients = connect(0);
    say("ok ready");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      String[] words = line.split(" ");
      String id = words[1];
      switch (words[0]) {
        case "lock", "keep" -> start(id, words[0].equals("keep"), Long.parseLong(words[2]), words[3]);
        case "unlock" -> open.get(id).unlock.countDown();
        case "cancel" -> {
          Held held = open.get(id);
          if (held != null) {
            held.cancelled = true;
          }
        }
        case "loop" -> threads.execute(() -> answer(id, () -> loop(Long.parseLong(words[2]), Long.parseLong(words[3]),
            Arrays.copyOfRange(words, 4, words.length))));
        default -> throw new IllegalArgumentException(line);
      }
    }
    System.exit(0); // the parent is done
  }

  private static RedissonClient[] connect(long watchdog) {
    RedissonClient[] all = new RedissonClient[servers.length];
    for (int i = 0; i < all.length; i++) {
      Config config = new Config();
      config.useSingleServer().setAddress("redis://" + servers[i]);
      if (watchdog > 0) {
        config.setLockWatchdogTimeout(watchdog);
      }
      all[i] = Redisson.create(config);
    }
    return all;
  }

  private static RLock lock(RedissonClient[] clients, String name) {
    RLock[] locks = new RLock[clients.length];
    for (int i = 0; i < locks.length; i++) {
      locks[i] = clients[i].getLock(name);
    }
    return new RedissonRedLock(locks);
  }

  private static void start(String id, boolean renewed, long lease, String name) {
    Held held = new Held();
    open.put(id, held);
    threads.execute(() -> {
      RLock lock;
      try {
        lock = lock(renewed ? keepers.computeIfAbsent(lease, Main::connect) : clients, name);
        if (renewed) {
          lock.lock();
        } else {
          lock.lock(lease, TimeUnit.MILLISECONDS);
        }
      } catch (Throwable e) {
        open.remove(id);
        say("error " + id + " " + text(e));
        return;
      }
      if (held.cancelled) {
        open.remove(id);
        lock.unlock();
        return;
      }
      say("ok " + id);
      answer(id, () -> {
        held.unlock.await();
        open.remove(id);
        lock.unlock();
        return "";
      });
    });
  }

  private interface Work {
    String run() throws Exception;
  }

  private static void answer(String id, Work work) {
    try {
      say("ok " + id + work.run());
    } catch (Throwable e) {
      say("error " + id + " " + text(e));
    }
  }

  private static String text(Throwable e) {
    return String.valueOf(e).replace('\n', ' ');
  }

  private static void say(String line) {
    synchronized (out) {
      out.println(line);
      out.flush();
    }
  }

  private static String loop(long lease, long time, String[] names) throws Exception {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(time);
    Future<StringBuilder>[] all = new Future[names.length];
    for (int i = 0; i < names.length; i++) {
      String name = names[i];
      all[i] = threads.submit(() -> pairs(lease, end, name));
    }
    StringBuilder took = new StringBuilder();
    for (Future<StringBuilder> one : all) {
      took.append(one.get());
    }
    return took.toString();
  }

  private static StringBuilder pairs(long lease, long end, String name) {
    long[] took = new long[1 << 10];
    int n = 0;
    for (long begin; (begin = System.nanoTime()) < end || n == 0; ) {
      RLock lock = lock(clients, name);
      lock.lock(lease, TimeUnit.MILLISECONDS);
      long locked = System.nanoTime();
      lock.unlock();
      if (n + 2 > took.length) {
        took = Arrays.copyOf(took, 2 * took.length);
      }
      took[n++] = locked - begin;
      took[n++] = System.nanoTime() - locked;
    }
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < n; i++) {
      text.append(' ').append(took[i]);
    }
    return text;
  }
}
