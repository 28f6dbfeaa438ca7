import io.temporal.activity.Activity;
import io.temporal.activity.ActivityInterface;
import io.temporal.activity.ActivityMethod;
import io.temporal.client.WorkflowClient;
import io.temporal.client.WorkflowClientOptions;
import io.temporal.serviceclient.WorkflowServiceStubs;
import io.temporal.serviceclient.WorkflowServiceStubsOptions;
import io.temporal.worker.Worker;
import io.temporal.worker.WorkerFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;

/** The same worker as main.go, in Java. */
public class Refunds {
  @ActivityInterface
  public interface Shop {
    @ActivityMethod(name = "RefundOrder")
    Map<String, String> refundOrder(Map<String, String> order, Map<String, String> call);
  }

  public static class Till implements Shop {
    @Override
    public Map<String, String> refundOrder(Map<String, String> order, Map<String, String> call) {
      try {
        Files.writeString(
            Path.of(System.getenv("EFFECTS")),
            call.get("idempotency_key") + "\n",
            StandardOpenOption.CREATE,
            StandardOpenOption.APPEND);
        while (System.getenv("HANGS") != null) {
          Activity.getExecutionContext().heartbeat(null);
          Thread.sleep(50);
        }
      } catch (Exception failure) {
        throw Activity.wrap(failure);
      }
      return Map.of("refunded", order.get("order"), "by", "java");
    }
  }

  public static void main(String[] arguments) {
    WorkflowServiceStubs service =
        WorkflowServiceStubs.newServiceStubs(
            WorkflowServiceStubsOptions.newBuilder().setTarget(arguments[0]).build());
    WorkflowClient client =
        WorkflowClient.newInstance(
            service, WorkflowClientOptions.newBuilder().setNamespace(arguments[1]).build());
    WorkerFactory factory = WorkerFactory.newInstance(client);
    Worker worker = factory.newWorker(arguments[2]);
    worker.registerActivitiesImplementations(new Till());
    factory.start();
  }
}
