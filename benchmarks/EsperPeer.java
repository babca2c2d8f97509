// The nearest pattern in Esper, driven line by line: each line on standard input is a run over all events from nothing,
// answered with the seconds it took and the number of matches. `matches` writes those of the last run to a file.
//
//     java -cp JARS EsperPeer.java EVENTS MATCHES
//
// EVENTS has a byte for the type and four for x, big-endian, for each event; an event's place is its time.

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;

import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.BufferedOutputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

public class EsperPeer {
    static final String[] TYPES = {"A", "B", "C"};
    static final String PATTERN =
        "@name('found') select b.x as x, b.t as t from pattern [every a=A -> (b=B(x=a.x) and not C(x=a.x))]";

    static int[] xs = new int[0];
    static int[] times = new int[0];
    static int matches;

    public static void main(String[] arguments) throws Exception {
        ByteBuffer events = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        int count = events.remaining() / 5;
        xs = new int[count];
        times = new int[count];
        Configuration configuration = new Configuration();
        for (String type : TYPES) {
            configuration.getCommon().addEventType(
                type, new String[] {"x", "t"}, new Object[] {int.class, int.class});
        }
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        EPCompiled compiled = EPCompilerProvider.getCompiler().compile(PATTERN, new CompilerArguments(configuration));
        EPRuntime runtime = EPRuntimeProvider.getDefaultRuntime(configuration);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            if (line.equals("matches")) {
                write(Path.of(arguments[1]));
                System.out.println("written");
            } else {
                double seconds = run(runtime, compiled, events.duplicate(), count);
                System.out.println(seconds + " " + matches);
            }
        }
    }

    static double run(EPRuntime runtime, EPCompiled compiled, ByteBuffer events, int count) throws Exception {
        EPDeployment deployment = runtime.getDeploymentService().deploy(compiled);
        matches = 0;
        deployment.getStatements()[0].addListener((found, gone, statement, from) -> {
            for (var one : found) {
                if (matches == xs.length) {
                    xs = java.util.Arrays.copyOf(xs, 2 * matches);
                    times = java.util.Arrays.copyOf(times, 2 * matches);
                }
                xs[matches] = (Integer) one.get("x");
                times[matches++] = (Integer) one.get("t");
            }
        });
        EPEventService service = runtime.getEventService();
        long began = System.nanoTime();
        for (int time = 0; time < count; time++) {
            String type = TYPES[events.get()];
            service.sendEventObjectArray(new Object[] {events.getInt(), time}, type);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        runtime.getDeploymentService().undeploy(deployment.getDeploymentId());
        return seconds;
    }

    static void write(Path file) throws Exception {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(file)))) {
            for (int at = 0; at < matches; at++) {
                out.writeInt(xs[at]);
                out.writeInt(times[at]);
            }
        }
    }
}
